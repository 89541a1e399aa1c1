"""Coverage-guided fuzzing of the readers of files, with atheris.

    python benchmarks/fuzz_readers.py                          a minute for each reader
    python benchmarks/fuzz_readers.py --seconds 3600 --only npz checkpoint
    python benchmarks/fuzz_readers.py --replay matrix FILE...  without atheris

A reader may return or refuse with its own exception; any other exception, a crash, more than ten
seconds or 2 GiB are failures.  The input that failed is kept under --keep, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

import stiefel
from stiefel.cli import matrices
from stiefel.cli.output import Misuse
from stiefel.objectives import Brockett
from stiefel.runs import archive
from stiefel.runs.checkpoint import CheckpointError, open_checkpoint
from stiefel.solvers import METHODS
from stiefel_experiments.bench.runs import FORMAT as BENCHMARKED
from stiefel_experiments.records import Format, RecordError
from stiefel_experiments.reproduce.runs import FORMAT as REPRODUCED

DOCS = Path(__file__).parent.parent / "docs"
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
OBJECTIVE, X0 = Brockett.table(9, 2), stiefel.random_point(9, 2, seed=0)
SOLVER = METHODS["accelerated"]


def put(name: str, data: bytes) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def matrix(data: bytes) -> None:
    try:
        A = matrices.load_symmetric(put("a", data), 1)
    except Misuse:
        return
    assert np.isfinite(A.data).all()
    A @ np.ones(A.shape[0])  # compiled code follows the indices


def npz(data: bytes) -> None:
    """The bytes as they are, and as the members of a container whose checksums are right."""
    matrix(data)
    matrix(container(members(data)))


def record_lines(data: bytes) -> None:
    for form in (REPRODUCED, BENCHMARKED):
        with contextlib.suppress(RecordError):
            form.load(put("records.jsonl", data))  # they are sorted, too


def checkpoint(data: bytes) -> None:
    """The file as it is; and its header, with a checksum that fits: a forger's work."""
    with contextlib.suppress(CheckpointError):
        stiefel.minimize(OBJECTIVE, X0, method=SOLVER, rtol=1e-9, maxiter=4,
                         checkpoint=put("c.npz", data),
                         resume=True, checkpoint_interval=1e9)  # fmt: skip
    try:
        changed = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(changed, dict):
        return
    header, arrays = archive.read(put("b.npz", GOOD["checkpoint"][0]))
    header |= {name: value for name, value in changed.items() if name not in ("kind", "format")}
    header.pop("kind"), header.pop("format")
    archive.write(FOLDER / "forged.npz", header, arrays)
    geometry = stiefel.Stiefel()
    saver = open_checkpoint(FOLDER / "forged.npz", 1.0, True, SOLVER, geometry, X0)
    with contextlib.suppress(CheckpointError):
        saved = saver.load(geometry)
        assert isinstance(saved.counters["nit"], int)


# -- good files to begin with --------------------------------------------------------------


def members(data: bytes) -> dict[str, bytes]:
    """Parts that begin with a name, a zero byte and a length of two bytes."""
    found, names = {}, ("shape", "format", "data", "indices", "indptr", "row", "col", "offsets")
    while len(data) > 3:
        name, size = names[data[0] % len(names)], int.from_bytes(data[1:3], "little")
        found[f"{name}.npy"], data = data[3 : 3 + size], data[3 + size :]
    return found


def container(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        for name, part in parts.items():
            z.writestr(name, part)
    return buffer.getvalue()


def good_matrices() -> list[bytes]:
    A = scipy.sparse.random_array((6, 6), density=0.5, rng=np.random.default_rng(0))
    A = scipy.sparse.coo_array(A + A.T)
    found = []
    for B in (A, A.toarray(), A * 1j - (A * 1j).T.conj(), scipy.sparse.coo_array(A > 0)):
        buffer = io.BytesIO()
        scipy.io.mmwrite(buffer, B)
        found.append(buffer.getvalue())
    return found


def good_npz() -> list[bytes]:
    names = ("shape", "format", "data", "indices", "indptr", "row", "col", "offsets")
    found = []
    for layout in ("csr", "csc", "coo", "bsr", "dia"):
        buffer = io.BytesIO()
        A = scipy.sparse.eye_array(4).asformat(layout)
        scipy.sparse.save_npz(buffer, A, compressed=False)
        found.append(buffer.getvalue())
        with zipfile.ZipFile(buffer) as z:
            parts = [(names.index(Path(n).stem), z.read(n)) for n in z.namelist() if
                     Path(n).stem in names]  # fmt: skip
        found.append(b"".join(bytes([i]) + len(p).to_bytes(2, "little") + p for i, p in parts))
    return found


def good_records() -> list[bytes]:
    files = [*DOCS.glob("reproduction/*.jsonl"), *DOCS.glob("benchmarks/*.jsonl")]
    return [b"\n".join(path.read_bytes().split(b"\n")[:2]) + b"\n" for path in files]


def good_checkpoints() -> list[bytes]:
    path = FOLDER / "good.npz"
    stiefel.minimize(OBJECTIVE, X0, method=SOLVER, rtol=1e-9, maxiter=2, checkpoint=path)
    header = json.dumps(archive.read(path)[0]).encode()
    return [path.read_bytes(), header]


READERS: dict[str, Callable[[bytes], None]] = {
    "matrix": matrix,
    "npz": npz,
    "records": record_lines,
    "checkpoint": checkpoint,
}
GOOD = {
    "matrix": good_matrices(),
    "npz": good_npz(),
    "records": good_records(),
    "checkpoint": good_checkpoints(),
}


# -- running -------------------------------------------------------------------------------


def fuzz(reader: str, seconds: int, seed: int, keep: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    for function in (matrices.load_symmetric, matrices._load_matrix_market, matrices._load_npz,
                     matrices._checked_text, matrices._announced_bytes, matrices._checked,
                     Format.load, Format.check, archive.read, archive._member,
                     archive._header):  # fmt: skip
        atheris.instrument_func(function)
    corpus = Path(tempfile.mkdtemp(prefix=f"corpus-{reader}-"))
    for data in GOOD[reader]:
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=10", "-rss_limit_mb=2048",
               "-max_len=20000", f"-artifact_prefix={keep}/{reader}-", "-print_final_stats=1",
               "-verbosity=0"]  # fmt: skip
    np.seterr(all="ignore")
    atheris.Setup([sys.argv[0], *options, str(corpus)], READERS[reader])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--replay", nargs="+", metavar=("READER", "FILE"))
    parser.add_argument("--child", choices=READERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        for path in given.replay[1:]:
            READERS[given.replay[0]](Path(path).read_bytes())
        return 0
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("atheris is not installed: pip install atheris (Linux); tests/test_trust_files.py "
              "fuzzes the same readers with hypothesis", file=sys.stderr)  # fmt: skip
        return 2
    given.keep.mkdir(parents=True, exist_ok=True)
    if given.child:
        fuzz(given.child, given.seconds, given.seed, given.keep)
    failed = []
    for reader in given.only:
        command = [sys.executable, __file__, "--child", reader, "--seconds", str(given.seconds),
                   "--seed", str(given.seed), "--keep", str(given.keep)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        counts = re.findall(
            r"stat::(number_of_executed_units|new_units_added): +([0-9]+)", done.stderr
        )
        tried, kept = (
            dict(counts).get(n, "?") for n in ("number_of_executed_units", "new_units_added")
        )
        verdict = "ok" if done.returncode == 0 else "FAILED"
        print(f"{reader}: {tried} inputs, {kept} with new coverage: {verdict}", flush=True)
        if done.returncode:
            failed.append(reader)
            print(done.stdout[-3000:], done.stderr[-1000:], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
