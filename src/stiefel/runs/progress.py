"""A progress line on standard error: on a terminal it is redrawn, elsewhere it is sparse."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, TextIO

from .stopping import RelativeGradient


class ProgressLine:
    """Shows iteration, value and gradient, and how far the gradient has to fall."""

    def __init__(self, rule: Any, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._tolerance = _relative_tolerance(rule)
        self._redraws = self._stream.isatty()
        self._interval = 0.1 if self._redraws else 10.0
        self._last = -math.inf
        self._first_norm = math.nan
        self._width = 0

    def __call__(self, snapshot: Any) -> None:
        if snapshot.nit == 0:
            self._first_norm = snapshot.gradient_norm
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            self._write(self._line(snapshot))

    def close(self, message: str) -> None:
        """The last line says how the run ended."""
        self._write(message)
        if self._redraws:
            self._stream.write("\n")
        self._stream.flush()

    def _line(self, s: Any) -> str:
        line = (
            f"iteration {s.nit}  f {s.fun:.10g}  gradient {s.gradient_norm:.2e}  "
            f"evaluations {s.nfev}  {s.seconds:.0f} s"
        )
        if self._tolerance and self._first_norm > 0 and s.gradient_norm > 0:
            done = math.log(s.gradient_norm / self._first_norm) / math.log(self._tolerance)
            line = f"[{100 * min(max(0.0, done), 1.0):3.0f} %] {line}"
        return line

    def _write(self, text: str) -> None:
        if self._redraws:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


def _relative_tolerance(rule: Any) -> float | None:
    for part in getattr(rule, "rules", (rule,)):
        if isinstance(part, RelativeGradient) and part.tolerance < 1:
            return part.tolerance
    return None
