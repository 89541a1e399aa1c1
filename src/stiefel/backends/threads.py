"""How many threads BLAS uses while a solver computes; the user's functions keep their own number.

A matrix with few columns gains nothing from threads, and loses much: NumPy and SciPy come with one
BLAS each, whose idle threads wait by spinning and take the cores from the other's.  On two cores,
n = 2000, k = 20, an iteration takes seven times as long with two threads as with one, n = 300,
k = 50 sixteen times.  So one thread is used for small matrices, and for large ones SciPy's BLAS is
left with one.  The numbers found are restored around every call of the user's functions and at the
end of the run; solves in several threads of a process count who is inside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import threadpoolctl

SMALL = 1_000_000  # entries of a point

_lock = threading.Lock()
_inside: dict[int, int] = {}  # how many solves are limiting a library just now …
_found: dict[int, int] = {}  # … and the number of threads that it had


class Threads:
    """A limit that holds inside ``with`` and outside the functions made by `freely`."""

    def __init__(self, libraries: list[Any]) -> None:
        self._libraries = libraries

    def __enter__(self) -> Threads:
        with _lock:
            for library in self._libraries:
                key = id(library)
                if not _inside.get(key):
                    _found[key] = library.get_num_threads()
                    if _found[key] != 1:
                        library.set_num_threads(1)
                _inside[key] = _inside.get(key, 0) + 1
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            for library in self._libraries:
                key = id(library)
                _inside[key] -= 1
                if not _inside[key] and _found[key] != 1:
                    library.set_num_threads(_found[key])

    def freely(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with as many threads as its owner chose; to be called inside only."""
        if not self._libraries:
            return function

        def free(*arguments: Any) -> Any:
            self.__exit__()
            try:
                return function(*arguments)
            finally:
                self.__enter__()

        return free


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
        key = id(library)
        return int(_found[key] if _inside.get(key) else library.get_num_threads())


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be seen)

    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return list(found.lib_controllers)
