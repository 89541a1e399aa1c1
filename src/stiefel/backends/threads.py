"""How many threads BLAS uses while a solver computes; the user's functions keep their own number.

A matrix with few columns gains nothing from threads, and loses much: NumPy and SciPy come with one
BLAS each, whose idle threads wait by spinning and take the cores from the other's.  On two cores,
n = 2000, k = 20, an iteration takes seven times as long with two threads as with one, n = 300,
k = 50 sixteen times.  So one thread is used for small matrices, and for large ones SciPy's BLAS is
left with one.  The numbers found are restored around every call of the user's functions and at the
end of the run.

The setting is a function of the set of running solves, and is computed again from that set at
every entry and exit: a library has one thread while a solve in the set limits it, and the number
that was found otherwise.  Entering or leaving twice is entering or leaving once, so that an
interrupt, which may fall between any two instructions, leaves nothing behind that the next exit
does not mend, be it of the same solve or of the next one.  A forked child keeps the solves of the
thread that forked, the only one it has.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

SMALL = 1_000_000  # entries of a point

_lock = threading.RLock()  # a signal handler may solve while its thread holds it
_running: dict[Threads, int] = {}  # the solves that limit just now ↦ their threads
_found: dict[int, int] = {}  # the number of threads that a limited library had


class Threads:
    """A limit that holds inside ``with`` and outside the functions made by `freely`.

    ``with threads, threads:`` also holds against an interrupt that falls on the first exit before
    its first instruction.
    """

    def __init__(self, libraries: list[Any]) -> None:
        self.libraries = libraries

    def __enter__(self) -> Threads:
        try:
            if self.libraries:
                self._join()
            return self
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *exception: object) -> None:
        """Leave, also where that is interrupted, twice if need be."""
        if not self.libraries:
            return
        try:
            self._leave()
        except BaseException:
            try:
                self._leave()
            except BaseException:
                self._leave()
                raise
            raise

    def _join(self) -> None:
        with _lock:
            here = threading.get_ident()
            # Solves that call each other are inside one at a time: others of this thread are gone.
            for solve in [s for s, thread in _running.items() if thread == here and s is not self]:
                del _running[solve]
            _running[self] = here
            _settle(self.libraries)

    def _leave(self) -> None:
        with _lock:
            _running.pop(self, None)
            _settle(self.libraries)

    def freely(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with as many threads as its owner chose; to be called inside only."""
        if not self.libraries:
            return function

        def free(*arguments: Any) -> Any:
            self.__exit__()
            try:
                return function(*arguments)
            finally:
                self.__enter__()

        return free


def _settle(libraries: list[Any]) -> None:
    """Give each library the number of threads that the running solves ask for."""
    limited = [library for solve in _running for library in solve.libraries]
    for library in libraries:
        key = id(library)
        if library in limited:
            if key not in _found:
                _found[key] = library.get_num_threads()
            _set(library, 1)
        elif key in _found:
            if library.get_num_threads() == 1:  # a number that somebody else chose since is theirs
                _set(library, _found[key])
            _found.pop(key, None)


def _set(library: Any, number: int) -> None:
    library.set_num_threads(number)
    # Since 3.8 threadpoolctl obeys the first thread that sets a number, until it lets go.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread()


def threads_for(X: Any) -> Threads:
    """The limit for a point like X; none where BLAS has one thread anyway, or is not NumPy's."""
    leaves, found = X if isinstance(X, tuple) else (X,), _libraries()
    here = all(isinstance(leaf, np.ndarray) for leaf in leaves)
    if not here or all(_chosen(library) == 1 for library in found):
        return Threads([])
    if max(leaf.size for leaf in leaves) > SMALL:
        own = [library for library in found if "numpy" in library.filepath]
        found = [library for library in found if library not in own] if own else []
    return Threads(found)


def _chosen(library: Any) -> int:
    """The user's number of threads, also while another solve is limiting it."""
    with _lock:
        number = _found.get(id(library)) or library.get_num_threads()
    return int(number)


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be seen)

    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return list(map(_direct, found.lib_controllers))


class OpenBlas(NamedTuple):
    """The functions of an OpenBLAS; threadpoolctl takes several times as long to find them."""

    filepath: str
    get_num_threads: Callable[[], int]
    set_num_threads: Callable[[int], None]


def _direct(library: Any) -> Any:
    """The library's own functions, where it has threads of its own and threadpoolctl names them."""
    find = getattr(library, "_get_symbol", None)
    if find is None or getattr(library, "threading_layer", None) != "pthreads":
        return library
    functions = find("openblas_get_num_threads"), find("openblas_set_num_threads")
    return library if None in functions else OpenBlas(library.filepath, *functions)


# -- processes -----------------------------------------------------------------------------


def _after_fork() -> None:
    """In the child: a free lock, and no solves of threads that were left behind."""
    global _lock
    _lock = threading.RLock()
    gone = [solve for solve, thread in _running.items() if thread != threading.get_ident()]
    for solve in gone:
        del _running[solve]
    for solve in gone:
        _settle(solve.libraries)


if hasattr(os, "register_at_fork"):
    # Nobody is in the middle of a change while the memory is copied.
    os.register_at_fork(
        before=lambda: _lock.acquire(),
        after_in_parent=lambda: _lock.release(),
        after_in_child=_after_fork,
    )
