"""Nested values in one .npz file that is either whole or refused; no pickle anywhere.

    header      JSON: what the values are, where the arrays go
    a0, a1, …   the arrays; one that occurs twice is stored once and is one object again
    checksum    SHA-256 of the header and of every array with its type and shape

The file is written aside, flushed to the disk and renamed, so that a crash at any moment leaves
the old file or the new one.  Reading treats the file as hostile: nothing is unpacked, imported
or evaluated, and no array is allocated that the file does not hold.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from stiefel.backends.arrays import is_array, kernels_for, to_numpy

KIND = "stiefel checkpoint"
FORMAT = 1
MAX_DEPTH = 50

Plain = np.ndarray[Any, Any]


class ArchiveError(ValueError):
    """A file that cannot be trusted."""


class Encoder:
    """Turns values into JSON and a list of arrays."""

    def __init__(self, is_known: Callable[[type], bool]) -> None:
        self.arrays: list[Plain] = []
        self.tuples: list[list[Any]] = []  # each refers to earlier ones only
        self._is_known = is_known
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # ids stay unique only while the objects live

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) in (int, float):
            return value
        if isinstance(value, Enum) and self._is_known(type(value)):
            return {"enum": _name(type(value)), "is": value.name}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if is_array(value):
            own = "numpy" if isinstance(value, np.ndarray) else "x0"
            return {"array": self._array(value), "of": own}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            if not self._is_known(type(value)):
                raise TypeError(f"a checkpoint cannot hold a {_name(type(value))}")
            return {"record": _name(type(value)), "is": [self(v) for v in value]}
        if isinstance(value, tuple):
            return {"tuple": self._tuple(value)}
        if isinstance(value, list):
            return {"list": [self(v) for v in value]}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self(v) for key, v in value.items()}}
        raise TypeError(f"a checkpoint cannot hold a {_name(type(value))}")

    def _tuple(self, value: tuple[Any, ...]) -> int:
        """Tuples are points of several matrices, and solvers ask whether X *is* Y."""
        if id(value) not in self._seen:
            self._alive.append(value)
            parts = [self(v) for v in value]
            self._seen[id(value)] = len(self.tuples)
            self.tuples.append(parts)
        return self._seen[id(value)]

    def _array(self, value: Any) -> int:
        if id(value) not in self._seen:
            self._seen[id(value)] = len(self.arrays)
            self._alive.append(value)
            self.arrays.append(to_numpy(value))
        return self._seen[id(value)]


class Decoder:
    """The inverse of `Encoder`; classes are looked up among those given, never imported."""

    def __init__(
        self, arrays: list[Plain], tuples: list[Any], classes: dict[str, type], like: Any
    ) -> None:
        self._arrays, self._classes, self._like = arrays, classes, like
        self._made: dict[tuple[int, str], Any] = {}
        self._tuples: list[tuple[Any, ...]] = []
        for parts in tuples:
            self._tuples.append(tuple(self(v) for v in parts))

    def __call__(self, value: Any, depth: int = 0) -> Any:
        if not isinstance(value, dict):
            return value
        if depth > MAX_DEPTH:
            raise ArchiveError("its values are nested too deeply")
        match value:
            case {"array": int(i), "of": str(owner)}:
                return self._array(i, owner)
            case {"scalar": int(i)}:
                return self._arrays[i][()]
            case {"enum": str(name), "is": str(member)}:
                return self._class(name)[member]  # type: ignore[index]
            case {"record": str(name), "is": list(parts)}:
                return self._class(name)(*(self(v, depth + 1) for v in parts))
            case {"tuple": int(i)}:
                return self._tuples[i]
            case {"list": list(parts)}:
                return [self(v, depth + 1) for v in parts]
            case {"dict": dict(parts)}:
                return {key: self(v, depth + 1) for key, v in parts.items()}
        raise ArchiveError("it holds a value of an unknown kind")

    def _class(self, name: str) -> type:
        if name not in self._classes:
            raise ArchiveError(f"it holds a {name}, which this method does not use")
        return self._classes[name]

    def _array(self, i: int, owner: str) -> Any:
        if (i, owner) not in self._made:
            values = self._arrays[i]
            if owner != "numpy":
                k = kernels_for(self._like)
                values = k.xp.asarray(values, device=k.device(self._like))
            self._made[i, owner] = values
        return self._made[i, owner]


def write(path: Path, header: dict[str, Any], arrays: list[Plain]) -> None:
    """Put a file at ``path``, whole or not at all."""
    text = json.dumps({"kind": KIND, "format": FORMAT, **header}).encode()
    members = {"header": np.frombuffer(text, np.uint8)}
    members |= {f"a{i}": a for i, a in enumerate(arrays)}
    members["checksum"] = np.frombuffer(_checksum(text, arrays), np.uint8)
    aside = path.with_name(path.name + ".partial")
    try:
        with open(aside, "wb") as file:
            np.savez(file, **members)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def read(path: Path) -> tuple[dict[str, Any], list[Plain]]:
    """(header, arrays) of a file that `write` wrote; an `ArchiveError` says what is wrong."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {info.filename: _member(archive, info) for info in archive.infolist()}
    except OSError as error:
        if error.errno != errno.EINVAL:  # which a seek to before the beginning gives
            raise
        raise ArchiveError("it is truncated or damaged") from None
    except ArchiveError:
        raise
    except Exception as error:  # zipfile and struct raise a dozen kinds for bytes that lie
        raise ArchiveError(f"it is truncated or damaged ({error})") from None
    header, text = _header(parts)
    arrays = [parts[f"a{i}.npy"] for i in range(len(parts)) if f"a{i}.npy" in parts]
    stored = parts.get("checksum.npy")
    if stored is None or stored.tobytes() != _checksum(text, arrays):
        raise ArchiveError("its checksum does not match: it is damaged")
    return header, arrays


def _header(parts: dict[str, Plain]) -> tuple[dict[str, Any], bytes]:
    text = parts["header.npy"].tobytes() if "header.npy" in parts else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise ArchiveError("it is not a checkpoint of stiefel, or a damaged one")
    version = header.get("format")
    if not isinstance(version, int) or version > FORMAT:
        raise ArchiveError(
            f"it has format {version!r} and this version reads up to {FORMAT}: "
            "use the newer version of stiefel that wrote it"
        )
    return header, text


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Plain:
    """One array, no larger than the bytes that the file holds for it."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > info.compress_size:
        raise ArchiveError("it is compressed, which checkpoints are not")
    data = io.BytesIO(archive.read(info))  # checks the CRC
    version = np.lib.format.read_magic(data)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read_header(data)
    body = data.read()
    if dtype.hasobject or dtype.itemsize * math.prod(shape) != len(body):
        raise ArchiveError("an array in it does not have the size that it claims")
    flat = np.frombuffer(bytearray(body), dtype)  # a bytearray, so that the array is writeable
    return flat.reshape(shape, order="F" if fortran else "C")


def _checksum(text: bytes, arrays: list[Plain]) -> bytes:
    digest = hashlib.sha256(text)
    for a in arrays:
        digest.update(array_digest(a))
    return digest.digest()


def array_digest(a: Plain) -> bytes:
    """SHA-256 of an array: type, shape, order and entries."""
    order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
    digest = hashlib.sha256(f"{np.lib.format.dtype_to_descr(a.dtype)}{a.shape}{order}".encode())
    digest.update(np.ascontiguousarray(a.T if order == "F" else a).reshape(-1).view(np.uint8).data)
    return digest.digest()


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


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
