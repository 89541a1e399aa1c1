"""The ranks of a run: one packed sum, and everything on which they must agree.

Every message is one ``Allreduce`` of double-precision numbers,

    [ errors | clock of rank 0 | Gram matrices and scalars … ],

and MPI requires that all ranks receive identical results from it.  What only rank 0 knows is
contributed by rank 0 while the others contribute zeros, which makes the same call a broadcast.
So values of f, gradients' norms and times are the same bits everywhere, and with them every
decision.  An exception in a user's function is kept until the next message, whose first number
tells the others: then it is raised on every rank.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

HEADER = 2  # errors, clock
# An error is reported with the next message.  If the other ranks never send it, they wait in
# communication of their own, which the failing rank has left: then only ending the job helps.
PATIENCE_AFTER_ERROR = 60.0  # seconds
# A launcher that sees a job aborted may drop what the ranks have written and it has not yet read.
TIME_TO_BE_READ = 2.0  # seconds


class RankError(RuntimeError):
    """Another rank's function raised; the message carries that rank's traceback."""


class Communication(NamedTuple):
    """What a rank has sent: ``result.communication`` of a run with ``comm=``."""

    messages: int  # collectives
    bytes: int
    seconds: float  # in collectives, waiting for slower ranks included


class Cargo:
    """A number that travels with the next sum."""

    def __init__(self, ranks: Ranks, share: float) -> None:
        self._ranks, self.share = ranks, share
        self.total: float | None = None

    def settle(self) -> float:
        """The sum over ranks; sends it now if nothing else has travelled since."""
        if self.total is None:
            self._ranks.sum(())
        assert self.total is not None
        return self.total


class Alone:
    """One process: nobody to wait for, nothing to send."""

    rank, size = 0, 1
    communication: Communication | None = None
    clock = staticmethod(time.perf_counter)

    def total(self, share: float) -> float:
        return share

    def sum(self, parts: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        return list(parts)

    def guard(self, function: Callable[[], Any], fallback: Callable[[], Any]) -> Any:
        return function()

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def raised_everywhere(self, error: BaseException) -> bool:
        return True

    def compare(self, facts: dict[str, str]) -> None:
        """There is nobody to disagree with."""


ALONE = Alone()


class Ranks:
    """A communicator, as the kernels, the objective and the driver need it."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self.comm = comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.communication = Communication(0, 0, 0.0)
        self._error: BaseException | None = None
        self._raised: BaseException | None = None
        self._cargo: list[Cargo] = []
        self._clock = 0.0
        self.patience = PATIENCE_AFTER_ERROR  # seconds

    # -- sums ------------------------------------------------------------------------------

    def sum(self, parts: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The sums over ranks of flat double-precision arrays, in one message."""
        cargo, self._cargo = self._cargo, []
        ends = np.cumsum([HEADER, *(part.size for part in parts)])
        buffer = np.empty(int(ends[-1]) + len(cargo))
        buffer[0] = self._error is not None
        buffer[1] = time.perf_counter() if self.rank == 0 else 0.0
        for part, start, end in zip(parts, ends, ends[1:]):
            buffer[start:end] = part
        buffer[ends[-1] :] = [c.share for c in cargo]
        self._allreduce(buffer, self._mpi.SUM)
        self._clock = float(buffer[1])
        for c, total in zip(cargo, buffer[ends[-1] :].tolist()):
            c.total = total
        if buffer[0]:
            self._raise()
        return [buffer[start:end] for start, end in pairwise(ends)]

    def carry(self, share: float) -> Cargo:
        """A number that travels with the next sum, at the cost of eight bytes."""
        self._cargo.append(Cargo(self, share))
        return self._cargo[-1]

    def total(self, share: float) -> float:
        return self.carry(share).settle()

    def largest(self, number: float) -> float:
        buffer = np.array([number])
        self._allreduce(buffer, self._mpi.MAX)
        return float(buffer[0])

    def clock(self) -> float:
        """Rank 0's clock, as of the last message: the same on every rank."""
        return self._clock

    def _allreduce(self, buffer: np.ndarray[Any, Any], operation: Any) -> None:
        watchdog = self._watchdog() if self._error is not None else None
        started = time.perf_counter()
        self.comm.Allreduce(self._mpi.IN_PLACE, buffer, op=operation)
        messages, size, seconds = self.communication
        seconds += time.perf_counter() - started
        self.communication = Communication(messages + 1, size + buffer.nbytes, seconds)
        if watchdog is not None:
            watchdog.cancel()

    # -- errors ----------------------------------------------------------------------------

    def guard(self, function: Callable[[], Any], fallback: Callable[[], Any]) -> Any:
        """``function()``; if it raises, ``fallback()``, and the next message tells all ranks."""
        try:
            return function()
        except BaseException as error:  # sys.exit included: the other ranks would wait for ever
            if error is self._raised:  # it has been raised everywhere already
                raise
            self._error = error
            return fallback()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Local work without messages that fails on every rank if it fails on one."""
        try:
            yield
        except BaseException as error:
            self._error = error
        self.sum(())

    def raised_everywhere(self, error: BaseException) -> bool:
        """Whether all ranks are raising now, so that they may still talk to each other."""
        return error is self._raised

    def _raise(self) -> None:
        """Raise this rank's own error, or say what another rank's was."""
        error, self._error = self._error, None
        first = np.array([self.size if error is None else self.rank])
        self.comm.Allreduce(self._mpi.IN_PLACE, first, op=self._mpi.MIN)
        text = self.texts("" if error is None else _text(error))[int(first[0])]
        if error is None:
            last = text.strip().rpartition("\n")[2]
            error = RankError(f"rank {first[0]} raised {last}; its traceback:\n{text}")
        self._raised = error
        raise error

    def _watchdog(self) -> threading.Timer:
        assert self._error is not None
        timer = threading.Timer(self.patience, self._abort, (_text(self._error),))
        timer.daemon = True
        timer.start()
        return timer

    def _abort(self, text: str) -> None:
        sys.stderr.write(
            f"stiefel: rank {self.rank} raised, and after {self.patience:g} s the other ranks have "
            f"not noticed: they wait inside a user's function.  The job is ended.\n{text}"
        )
        sys.stderr.flush()
        time.sleep(TIME_TO_BE_READ)
        self.comm.Abort(1)

    # -- agreement at the start ------------------------------------------------------------

    def texts(self, text: str) -> list[str]:
        """The texts of all ranks, on every rank."""
        mine = np.frombuffer(text.encode(), dtype=np.uint8)
        sizes = np.zeros(self.size, dtype=np.int64)
        self.comm.Allgather(np.array([mine.size]), sizes)
        every = np.empty(int(sizes.sum()), dtype=np.uint8)
        self.comm.Allgatherv(mine, (every, sizes.tolist()))
        ends = np.cumsum(sizes)
        return [every[e - s : e].tobytes().decode() for s, e in zip(sizes, ends)]

    def compare(self, facts: dict[str, str]) -> None:
        """Raise on every rank unless all ranks pass the same facts."""
        every = [json.loads(text) for text in self.texts(json.dumps(facts))]
        for rank, others in enumerate(every):
            for name, given in every[0].items():
                if others.get(name) != given:
                    self._raised = ValueError(
                        f"{name} is {others.get(name)} on rank {rank} and {given} on rank 0; "
                        "expected the same on every rank of comm"
                    )
                    raise self._raised


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
