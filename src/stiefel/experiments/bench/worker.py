"""Runs in a process of their own: specs come in and records go out as lines of JSON.

Started as ``python -m stiefel.experiments.bench.worker`` with one BLAS thread, see `pool`.
"""

from __future__ import annotations

import json
import os
import sys

from .runs import Run, dump, execute, warm_up


def main() -> None:
    """Answer every line of standard input with a line on the standard output we were given."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries that print do not disturb the answers
    warm = set()
    for line in sys.stdin:
        run = Run(**json.loads(line))
        if run.solver not in warm:
            warm_up(run.solver)
            warm.add(run.solver)
        print(dump(execute(run)), file=answers, flush=True)


if __name__ == "__main__":
    main()
