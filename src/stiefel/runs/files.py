"""Files that are whole or not there, that nobody else can redirect, and that have one owner.

A file is written under a fresh name in the folder where it belongs, opened exclusively, flushed to
the disk and renamed: a crash at any moment leaves the old file or the new one, and a link that
somebody planted under a name they guessed is never followed.  The mode and the owner of the file
before are kept; where the path is a symbolic link, its target is replaced and the link stays.

A run owns its path by a lock of the system on a file beside it.  The system gives the lock back
when the process ends, in whatever way: what a crashed run leaves behind hinders nobody.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

LONGEST_NAME = 200  # of a file, so that what is added to it fits into 255
LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
_CAREFUL = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PATIENT = getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to does not hold us up


class Occupied(OSError):
    """Another run owns the path."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Put what ``write`` writes at ``path``, whole or not at all."""
    target = Path(os.path.realpath(path))
    refuse_special(target)
    token = secrets.token_hex(8)
    aside = target.with_name(f"{target.name[:LONGEST_NAME]}.{token}.partial")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL, 0o666)
    try:
        with open(handle, "wb") as file:
            write(file)
            file.flush()
            _keep_mode(target, file.fileno())
            os.fsync(file.fileno())
        os.replace(aside, target)
        _sync_folder(target.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading; pipes and devices are refused, and do not block."""
    handle = os.open(path, os.O_RDONLY | _PATIENT | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileExistsError(errno.EEXIST, "it is not a regular file", str(path))
        return open(handle, "rb")
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise


def refuse_special(path: Path) -> None:
    """A `FileExistsError` for a pipe, a device or a socket: they are no place for a file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileExistsError(
            errno.EEXIST, "it is a pipe, a device or a socket; expected a regular file", str(path)
        )


def remove_partial(path: Path) -> None:
    """Remove what crashed owners of ``path`` have left; for its owner only."""
    target = Path(os.path.realpath(path))
    for left in target.parent.glob(f"{_literal(target.name[:LONGEST_NAME])}.*.partial"):
        with contextlib.suppress(OSError):
            left.unlink()


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _keep_mode(target: Path, handle: int) -> None:
    """The mode and, where the system allows it, the owner of the file that is replaced."""
    try:
        before = target.stat()
    except OSError:
        return
    if hasattr(os, "fchown"):
        now = os.fstat(handle)
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
            with contextlib.suppress(OSError):
                os.fchown(handle, before.st_uid, before.st_gid)
        with contextlib.suppress(OSError):
            os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _sync_folder(folder: Path) -> None:
    """The rename itself reaches the disk; not every system can open a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# -- one owner -----------------------------------------------------------------------------

_locks_held: set[Lock] = set()


class Lock:
    """The right to write a path; ``PATH.lock`` exists while a run holds it.

    Where the system cannot lock, or nobody may write beside the path, there is no lock.
    """

    def __init__(self, path: Path) -> None:
        target = Path(os.path.realpath(path))
        self.path, self.place = path, target.with_name(f"{target.name[:LONGEST_NAME]}.lock")
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `Occupied`."""
        while sys.platform != "win32":
            handle = self._open()
            if handle is None:
                return
            if self._take(handle):
                self._handle = handle
                _locks_held.add(self)
                return
            os.close(handle)  # the last owner has removed the file since it was opened

    def release(self) -> None:
        """Give the lock back, and remove its file; once is as good as twice."""
        handle, self._handle = self._handle, None
        _locks_held.discard(self)
        if handle is not None:
            with contextlib.suppress(OSError):
                self.place.unlink()
            os.close(handle)

    def abandon(self) -> None:
        """In a forked child: the lock is the parent's."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _open(self) -> int | None:
        try:
            handle = os.open(self.place, os.O_RDWR | os.O_CREAT | _CAREFUL | _PATIENT, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._strange() from None
            return None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._strange()
        return handle

    def _take(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in LOCKS_UNSUPPORTED:
                return True
            os.close(handle)
            raise Occupied(
                errno.EBUSY,
                f"another run is saving to {self.path}: wait until it has ended, or pass another "
                f"path (its lock is {self.place})",
            ) from None
        try:
            return os.path.samestat(os.fstat(handle), os.lstat(self.place))
        except OSError:
            return False

    def _strange(self) -> Occupied:
        return Occupied(
            errno.EEXIST,
            f"{self.place} is not a file of this library: remove it, or pass another path",
        )


def _after_fork() -> None:
    for lock in list(_locks_held):
        lock.abandon()
    _locks_held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
