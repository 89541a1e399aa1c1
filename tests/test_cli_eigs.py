"""`stiefel eigs` against dense eigensolvers, and against files that mean no good."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sparse

from cli_tools import stiefel, stiefel_here

n = 60


def laplacian() -> Any:
    return sparse.diags_array(
        [-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]
    )


def hermitian() -> Any:
    rng = np.random.default_rng(5)
    A = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    A[rng.random((n, n)) < 0.8] = 0
    return sparse.csr_array(A + A.conj().T)


@pytest.mark.parametrize(
    ("matrix", "which", "suffix"),
    [(laplacian, "smallest", "mtx"), (laplacian, "largest", "npz"),
     (hermitian, "largest", "mtx"), (hermitian, "smallest", "npz")],
)  # fmt: skip
def test_agrees_with_a_dense_eigensolver(
    matrix: Any, which: str, suffix: str, tmp_path: Path
) -> None:
    A = matrix()
    file, out = tmp_path / f"A.{suffix}", tmp_path / "out.npz"
    scipy.io.mmwrite(file, A) if suffix == "mtx" else sparse.save_npz(file, A.tocsr())
    result = stiefel("eigs", file, "-k", 3, "--which", which, "-o", out, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    exact = np.linalg.eigvalsh(A.toarray())
    expected = exact[:3] if which == "smallest" else exact[::-1][:3]
    np.testing.assert_allclose(document["values"], expected, atol=1e-9)
    with np.load(out) as saved:
        V, values, residuals = saved["vectors"], saved["values"], saved["residuals"]
    R = np.linalg.norm(A @ V - V * values, axis=0)
    np.testing.assert_allclose(R, residuals, atol=1e-13)
    assert R.max() <= document["allowed_residual"]
    assert np.linalg.norm(V.conj().T @ V - np.eye(3)) < 1e-12
    assert document["iterations"] > 0 and document["gradient_evaluations"] > 0


def test_all_eigenvectors_and_the_zero_matrix(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "A.npz", laplacian().tocsr())
    result = stiefel_here("eigs", "A.npz", "-k", n, "--json", cwd=tmp_path)
    values = json.loads(result.stdout)["values"]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(laplacian().toarray()), atol=1e-12)
    sparse.save_npz(tmp_path / "zero.npz", sparse.csr_array((5, 5)))
    result = stiefel_here("eigs", "zero.npz", "-k", 2, "--json", cwd=tmp_path)
    assert result.exit_code == 0 and json.loads(result.stdout)["values"] == [0.0, 0.0]


def test_not_converging_is_exit_code_one_and_still_written(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "A.npz", laplacian().tocsr())
    result = stiefel("eigs", tmp_path / "A.npz", "-k", 2, "--maxiter", 3, "-o", tmp_path / "o.npz")
    assert result.returncode == 1
    assert "NOT all residuals" in result.stdout and "MAX_ITERATIONS" in result.stdout
    assert (tmp_path / "o.npz").exists()


def mtx(header: str, *lines: str) -> bytes:
    return "\n".join([f"%%MatrixMarket matrix {header}", *lines, ""]).encode()


def npz(**members: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, **members)
    return buffer.getvalue()


def csr(**changes: Any) -> dict[str, Any]:
    A = sparse.csr_array(np.eye(4))
    members = {
        "indices": A.indices,
        "indptr": A.indptr,
        "format": b"csr",
        "shape": np.array(A.shape),
        "data": A.data,
    }
    return members | changes


def lying_header() -> bytes:
    """A member that announces 10¹² numbers and holds four."""
    import io

    good = npz(**csr())
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "data.npy":
                data = data.replace(b"(4,), }", b"(10**12,), }").replace(
                    b"(10**12,)", b"(999999999999,)"
                )
                data = data.replace(b" " * 11 + b"\n", b"\n", 1)
            target.writestr(name, data)
    return out.getvalue()


HOSTILE = {
    "empty file": (b"", "neither"),
    "not a matrix": (b"hello, world\n", "neither"),
    "header only": (b"%%MatrixMarket matrix coordinate real general\n", "cannot be read"),
    "not square": (mtx("coordinate real general", "2 3 1", "1 1 1.0"), "2 × 3"),
    "empty": (mtx("coordinate real general", "0 0 0"), "empty"),
    "not symmetric": (mtx("coordinate real general", "2 2 1", "1 2 1.0"), "not symmetric"),
    "not hermitian": (mtx("coordinate complex symmetric", "2 2 1", "2 1 0 1"), "not Hermitian"),
    "nan": (mtx("coordinate real symmetric", "2 2 1", "1 1 nan"), "NaN"),
    "infinite": (mtx("coordinate real symmetric", "2 2 1", "1 1 inf"), "NaN or infinite"),
    "index out of range": (mtx("coordinate real general", "2 2 1", "7 7 1.0"), "cannot be read"),
    "more entries than bytes": (mtx("coordinate real general", "9 9 999999999999"), "announces"),
    "enormous order": (mtx("coordinate real general", "999999999999 999999999999 0"), "GiB"),
    "negative order": (mtx("coordinate real general", "-4 -4 0"), ""),
    "words for numbers": (mtx("coordinate real general", "2 2 1", "1 1 one"), "cannot be read"),
    "npz without shape": (npz(a=np.eye(3)), "no member 'shape'"),
    "npz with objects": (npz(**csr(data=np.array([{}] * 4, dtype=object))), "objects"),
    "npz with wild indices": (npz(**csr(indices=np.array([0, 1, 2, 2**30]))), "cannot be read"),
    "npz with wild pointers": (npz(**csr(indptr=np.array([0, 9, 2, 3, 4]))), "cannot be read"),
    "npz of strings": (npz(**csr(data=np.array(["a"] * 4))), ""),
    "npz with a huge shape": (npz(**csr(shape=np.array([10**12, 10**12]))), "GiB"),
    "npz cut short": (npz(**csr())[:200], "cannot be read"),
    "npz that lies": (lying_header(), ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    data, words = HOSTILE[name]
    file, out = tmp_path / "matrix", tmp_path / "out.npz"
    file.write_bytes(data)
    result = stiefel_here("eigs", file, "-k", 1, "-o", out, cwd=tmp_path)
    assert result.exit_code == 2, (result.stdout, result.stderr)
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1
    assert words in result.stderr
    assert not out.exists() and result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["-k", "0"], ["-k", "61"], ["-k", "2", "--tol", "0"], ["-k", "2", "-o", "no/such/dir.npz"],
     ["-k", "2", "-o", "."], ["-k", "2", "--which", "middle"]],
    ids=" ".join,
)  # fmt: skip
def test_bad_options_are_refused(arguments: list[str], tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "A.npz", laplacian().tocsr())
    result = stiefel_here("eigs", "A.npz", *arguments, cwd=tmp_path)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr and result.stderr.strip()
    assert sorted(os.listdir(tmp_path)) == ["A.npz"]


def test_refusals_as_a_process(tmp_path: Path) -> None:
    (tmp_path / "A.mtx").write_bytes(HOSTILE["not symmetric"][0])
    result = stiefel("eigs", tmp_path / "A.mtx", "-k", 1)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("error: ") and "not symmetric" in result.stderr


def test_a_missing_file_is_refused() -> None:
    result = stiefel("eigs", "no-such-file.mtx", "-k", 1)
    assert result.returncode == 2 and "is not a file" in result.stderr


def test_a_large_matrix_needs_no_square_array(tmp_path: Path, monkeypatch: Any) -> None:
    """100,000 rows: an identity of that order would take 74.5 GiB."""
    from stiefel.cli import eigs

    A = sparse.diags_array(np.concatenate([[1.0, 2.0], np.full(99_998, 100.0)])).tocsr()
    eye = np.eye
    monkeypatch.setattr(np, "eye", lambda m, *a, **o: eye(m, *a, **o) if m < 1000 else 1 / 0)
    pairs = eigs.solve(A, 2, eigs.Which.smallest, 1e-6, 200, 0)
    np.testing.assert_allclose(pairs.values, [1.0, 2.0], atol=1e-4)
    assert pairs.vectors.shape == (100_000, 2)


@pytest.mark.parametrize("name", ["A.npz", "./A.npz", "link.npz", "hard.npz"])
def test_the_matrix_is_not_overwritten_by_its_eigenvectors(name: str, tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "A.npz", laplacian().tocsr())
    (tmp_path / "link.npz").symlink_to(tmp_path / "A.npz")
    (tmp_path / "hard.npz").hardlink_to(tmp_path / "A.npz")
    before = (tmp_path / "A.npz").read_bytes()
    result = stiefel_here("eigs", "A.npz", "-k", 2, "-o", name, cwd=tmp_path)
    assert result.exit_code == 2
    assert "it is the matrix itself" in result.stderr
    assert (tmp_path / "A.npz").read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("name", ["pipe", os.devnull])
def test_pipes_and_devices_are_not_replaced(name: str, tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "A.npz", laplacian().tocsr())
    os.mkfifo(tmp_path / "pipe")
    before = os.stat(tmp_path / name)
    result = stiefel_here("eigs", "A.npz", "-k", 2, "-o", name, cwd=tmp_path)
    assert result.exit_code == 2
    assert "a device, a pipe or a socket" in result.stderr
    assert os.stat(tmp_path / name).st_mode == before.st_mode
