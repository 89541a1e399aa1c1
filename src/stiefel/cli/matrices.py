"""Sparse symmetric matrices from files that nobody vouches for.

Sizes are read from the headers and compared with limits before anything is allocated; nothing is
unpickled; indices are checked before compiled code follows them.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from .output import Misuse

ENTRY_BYTES = 40  # an entry as text becomes a triple, then a row-major entry
VECTOR_COPIES = 16  # tall arrays alive at a time
_INDEX = rb"[0-9]{1,18}"
_NUMBER = rb"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
_NUMBER += rb"|[+-]?(?i:nan|inf|infinity)"  # which `_checked` refuses with a better sentence
SYMMETRY = 1e-12  # relative to the largest entry


def memory_limit() -> int:
    """Half of the machine's memory for matrix and vectors; 4 GiB where it cannot be asked."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 << 30


def load_symmetric(path: Path, k: int) -> Any:
    """A real or complex CSR matrix A = Aᴴ in double precision, or a `Misuse` that says why not."""
    if not path.is_file():
        raise Misuse(f"{path} is not a file; expected a matrix in Matrix Market or .npz form")
    with path.open("rb") as file:
        magic = file.read(14)
    try:
        if magic.startswith(b"PK"):
            A = _load_npz(path, k)
        elif magic.lower() == b"%%matrixmarket":
            A = _load_matrix_market(path, k)
        else:
            raise Misuse(
                f"{path} is neither Matrix Market (first line %%MatrixMarket …) nor a .npz file "
                "of scipy.sparse.save_npz"
            )
    except Misuse:
        raise
    except MemoryError:
        raise Misuse(f"{path} does not fit into memory") from None
    except Exception as error:  # readers of hostile files fail in every way there is
        raise Misuse(f"{path} cannot be read: {_one_line(error)}") from None
    return _checked(A, path)


def _load_matrix_market(path: Path, k: int) -> Any:
    rows, columns, entries, layout, field, symmetry = scipy.io.mminfo(path)
    del symmetry
    size = path.stat().st_size
    # An entry takes at least "1 1\n" in a list and "0\n" in a full array.
    least = 4 if layout == "coordinate" else 1
    if entries * least > size:
        raise Misuse(f"{path} announces {entries:,} entries, more than its {size:,} bytes can hold")
    check_size(path, rows, columns, entries, k)
    return scipy.io.mmread(_checked_text(path, layout, field))


def _checked_text(path: Path, layout: str, field: str) -> io.BytesIO:
    """The file, once every line of numbers has its form: SciPy's reader crashes on some others."""
    values = {"pattern": 0, "complex": 2}.get(field, 1)
    indices = 2 if layout == "coordinate" else 0
    form = re.compile(
        rb"[ \t]*"
        + rb"[ \t]+".join([_INDEX] * indices + [rb"(?:" + _NUMBER + rb")"] * values)
        + rb"[ \t\r]*"
    )
    lines = path.read_bytes().split(b"\n")
    sizes = True  # the first line that is no comment
    for number, line in enumerate(lines, 1):
        if line.startswith(b"%") or not line.strip():
            continue
        if not sizes and not form.fullmatch(line):
            raise Misuse(
                f"{path} cannot be read: line {number} is not an entry of a {field} {layout} matrix"
            )
        sizes = False
    return io.BytesIO(b"\n".join(lines) + b"\n")


def _load_npz(path: Path, k: int) -> Any:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if "shape.npy" not in members:
            raise Misuse(f"{path} has no member 'shape'; write it with scipy.sparse.save_npz")
        unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > memory_limit():
            raise Misuse(f"{path} unpacks to {unpacked:,} bytes; the limit is {memory_limit():,}")
        announced = 0
        for info in members.values():
            with archive.open(info) as file:
                announced += _announced_bytes(file, info)
        with archive.open("shape.npy") as file:
            shape = np.lib.format.read_array(file, allow_pickle=False)
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise Misuse(f"{path}: 'shape' is not a pair of integers")
    check_size(path, int(shape[0]), int(shape[1]), announced // 8, k)
    A = scipy.sparse.load_npz(path)
    if A.format in ("csr", "csc", "bsr"):
        A.check_format(full_check=True)  # compiled code trusts these indices
    return A


def _announced_bytes(file: Any, info: zipfile.ZipInfo) -> int:
    """The size of a member as its own header states it; a header that lies is refused."""
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    if version[0] not in read:
        raise Misuse(f"member {info.filename!r} is not a plain array of numbers")
    shape, _, dtype = read[version[0]](file)
    size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
    if dtype.hasobject:
        raise Misuse(f"member {info.filename!r} holds Python objects, which are not loaded")
    if size > info.file_size:
        raise Misuse(
            f"member {info.filename!r} announces {size:,} bytes and holds {info.file_size:,}"
        )
    return max(size, info.file_size)


def check_size(path: Path, rows: int, columns: int, entries: int, k: int) -> None:
    """Shape, K and memory, before anything large is allocated."""
    if rows != columns:
        raise Misuse(f"{path} is {rows} × {columns}; eigenvectors need a square matrix")
    if rows < 1:
        raise Misuse(f"{path} is empty ({rows} × {columns})")
    if not 1 <= k <= rows:
        raise Misuse(f"-k is {k}; expected 1 … {rows}, the order of the matrix")
    needed = ENTRY_BYTES * entries + VECTOR_COPIES * 8 * rows * k
    if needed > memory_limit():
        raise Misuse(
            f"{path} with {rows:,} rows, {entries:,} entries and k = {k} would need about "
            f"{needed / 2**30:.1f} GiB; the limit, half of this machine's memory, is "
            f"{memory_limit() / 2**30:.1f} GiB"
        )


def _checked(A: Any, path: Path) -> Any:
    if np.dtype(A.dtype).kind not in "biufc":
        raise Misuse(f"{path} has entries of type {A.dtype}; expected numbers")
    complex_ = np.dtype(A.dtype).kind == "c"
    A = scipy.sparse.csr_array(A).astype(np.complex128 if complex_ else np.float64)
    A.sum_duplicates()
    bad = int((~np.isfinite(A.data)).sum())
    if bad:
        raise Misuse(f"{path} has {bad} entries that are NaN or infinite")
    gap = A - A.conj().T
    worst = float(np.abs(gap.data).max(initial=0.0))
    largest = float(np.abs(A.data).max(initial=0.0))
    if worst > SYMMETRY * largest:
        kind = "Hermitian" if complex_ else "symmetric"
        raise Misuse(
            f"{path} is not {kind}: max |A − Aᴴ| = {worst:.1e} with max |A| = {largest:.1e}"
        )
    return A


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 200 else text[:197] + "..."
