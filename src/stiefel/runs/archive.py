"""Named values and arrays in one .npz file that is either whole or refused; no pickle anywhere.

    header      JSON: the values, and where the arrays go
    a0, a1, …   the arrays; equal ones are stored once
    checksum    SHA-256 of the header and of every array with its type and shape

The file is written as `files.write_whole` says.  Reading treats it as hostile: nothing is unpacked,
imported or evaluated, and no array is allocated that the file does not hold.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from stiefel.types import NumpyArray

from .files import open_regular, write_whole

KIND = "stiefel checkpoint"
# 1 held nested records, 2 row models that see no gradient, 3 no doubt of gradients and no scales of
# unit vectors, 4 no strain of row models, 5 not where a patient look at them began to rest.
FORMAT = 6
MOST_COPIES = 64  # of one array: a small file cannot ask for all of the memory


class ArchiveError(ValueError):
    """A file that cannot be trusted."""


def write(path: Path, header: dict[str, Any], arrays: list[NumpyArray]) -> None:
    """Put a file at ``path``, whole or not at all; equal arrays are stored once."""
    digests, first = [array_digest(a) for a in arrays], dict[bytes, int]()
    stored = [first.setdefault(d, len(first)) for d in digests]
    text = json.dumps({"kind": KIND, "format": FORMAT, "stored": stored, **header}).encode()
    members = {"header": np.frombuffer(text, np.uint8)}
    members |= {f"a{i}": a for i, a in zip(stored, arrays)}
    members["checksum"] = np.frombuffer(_checksum(text, list(first)), np.uint8)
    write_whole(path, lambda file: np.savez(file, **members))  # type: ignore[arg-type]


def read(path: Path) -> tuple[dict[str, Any], list[NumpyArray]]:
    """(header, arrays) of a file that `write` wrote; an `ArchiveError` says what is wrong."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
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
    unique = [parts[f"a{i}.npy"] for i in range(len(parts)) if f"a{i}.npy" in parts]
    checksum = parts.get("checksum.npy")
    if checksum is None or checksum.tobytes() != _checksum(text, list(map(array_digest, unique))):
        raise ArchiveError("its checksum does not match: it is damaged")
    return header, _unpacked(header.pop("stored", None), unique)


def _unpacked(stored: Any, unique: list[NumpyArray]) -> list[NumpyArray]:
    """Every array in its own memory, however many were stored as one."""
    good = isinstance(stored, list) and all(type(i) is int for i in stored)
    times = Counter(stored) if good else Counter({-1: 1})
    if any(not (0 <= i < len(unique) and n <= MOST_COPIES) for i, n in times.items()):
        raise ArchiveError("it does not say where its arrays are")
    return [unique[i].copy(order="K") if times[i] > 1 else unique[i] for i in stored]


def _header(parts: dict[str, NumpyArray]) -> tuple[dict[str, Any], bytes]:
    text = parts["header.npy"].tobytes() if "header.npy" in parts else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise ArchiveError("it is not a checkpoint of stiefel, or a damaged one")
    version = header.get("format")
    if type(version) is int and 0 < version < FORMAT:
        raise ArchiveError(
            f"it has format {version}, which this version no longer reads: end that run with the "
            "older version of stiefel that wrote it"
        )
    if type(version) is not int or version != FORMAT:
        raise ArchiveError(
            f"it has format {version!r} and this version reads up to {FORMAT}: "
            "use the newer version of stiefel that wrote it"
        )
    return header, text


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NumpyArray:
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


def _checksum(text: bytes, digests: list[bytes]) -> bytes:
    return hashlib.sha256(text + b"".join(digests)).digest()


def array_digest(a: NumpyArray) -> bytes:
    """SHA-256 of an array: type, shape, order and entries."""
    order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
    digest = hashlib.sha256(f"{np.lib.format.dtype_to_descr(a.dtype)}{a.shape}{order}".encode())
    digest.update(np.ascontiguousarray(a.T if order == "F" else a).reshape(-1).view(np.uint8).data)
    return digest.digest()
