"""``stiefel eigs``: extreme eigenvectors of a sparse matrix, the smallest use of the library."""

from __future__ import annotations

import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import stiefel
from stiefel.objectives import Rayleigh
from stiefel.types import Array

from .matrices import load_symmetric
from .output import (
    NOT_CONVERGED,
    Misuse,
    console,
    print_json,
    print_table,
    refusals,
    write_bytes,
)


class Which(StrEnum):
    smallest = "smallest"
    largest = "largest"


class Eigenpairs(NamedTuple):
    values: Array  # ascending for smallest, descending for largest
    vectors: Array
    residuals: Array  # ‖A v − λ v‖
    allowed: float  # tolerance · ‖A‖_∞
    result: Any  # of the run; None if none was needed

    @property
    def success(self) -> bool:
        return bool(self.residuals.max() <= self.allowed)


def register(app: typer.Typer) -> None:
    app.command("eigs")(eigs)


def eigs(
    matrix: Annotated[Path, typer.Argument(help="Matrix Market (.mtx) or scipy.sparse .npz file.")],
    k: Annotated[int, typer.Option("-k", help="How many eigenvectors.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write values, vectors and residuals.")
    ] = None,
    which: Annotated[Which, typer.Option(help="Which end of the spectrum.")] = Which.smallest,
    tol: Annotated[float, typer.Option(help="Allowed residual, relative to ‖A‖_∞.")] = 1e-8,
    maxiter: Annotated[int, typer.Option(min=1, help="Limit on iterations.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random start.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Compute the K smallest or largest eigenpairs of a symmetric or Hermitian sparse matrix.

    It minimises ½ tr XᴴAX over orthonormal X by the accelerated method and rotates the columns of
    X into eigenvectors. For a plain eigenproblem LOBPCG or ARPACK (scipy.sparse.linalg) is the
    better tool; this command is a small complete example of the library's use.

    Example:  stiefel eigs laplacian.mtx -k 4 -o modes.npz
    """
    with refusals():
        if not 1e-14 <= tol < 1:
            raise Misuse(f"--tol is {tol}; expected a number between 1e-14 and 1")
        if output is not None:
            check_writable(output, matrix)
        A = load_symmetric(matrix, k)
        pairs = solve(A, k, which, tol, maxiter, seed)
        if output is not None:
            save(output, pairs)
    show_json(pairs, output) if as_json else show_pairs(pairs, output)
    if not pairs.success:
        raise typer.Exit(NOT_CONVERGED)


def solve(A: Any, k: int, which: Which, tol: float, maxiter: int, seed: int) -> Eigenpairs:
    """Minimise, then Rayleigh–Ritz; cost O(nnz k + nk²) an iteration."""
    n = A.shape[0]
    sign = 1.0 if which is Which.smallest else -1.0
    allowed = tol * float(abs(A).sum(axis=1).max(initial=0.0))
    result = None
    if k == n:
        X = np.eye(n, dtype=A.dtype)
    else:
        X0 = stiefel.random_point(n, k, seed=seed, dtype=A.dtype)
        result = stiefel.minimize(
            Rayleigh(sign * A, columns=k), X0, method="accelerated",
            # The residual of the subspace is the gradient: half of it leaves room for rounding.
            rtol=0.0, gtol=max(0.5 * allowed, np.finfo(float).tiny), maxiter=maxiter,
            progress=sys.stderr.isatty(),
        )  # fmt: skip
        X = result.x
    AX = A @ X
    H = X.conj().T @ AX
    values, rotation = np.linalg.eigh(sign * 0.5 * (H + H.conj().T))
    values = sign * values
    vectors = X @ rotation
    residuals = np.linalg.norm(AX @ rotation - vectors * values, axis=0)
    return Eigenpairs(values, vectors, residuals, allowed, result)


def check_writable(path: Path, source: Path) -> None:
    """Before the work, not after it: a file, in a folder that takes one, and not the input."""
    folder = path.resolve().parent
    reason = ""
    if path.is_dir():
        reason = "it is a directory"
    elif not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "its directory is missing or read-only"
    elif path.exists() and not path.is_file():
        reason = "it is a device, a pipe or a socket, not a file"
    elif path.exists() and source.exists() and path.samefile(source):
        reason = "it is the matrix itself; pass another name to -o"
    if reason:
        raise Misuse(f"cannot write {path}: {reason}")


def save(path: Path, pairs: Eigenpairs) -> None:
    """Write the .npz file whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, values=pairs.values, vectors=pairs.vectors, residuals=pairs.residuals)
    try:
        write_bytes(path, buffer.getvalue())
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror or error}") from None


def show_pairs(pairs: Eigenpairs, output: Path | None) -> None:
    rows = [
        (str(i + 1), f"{value:.12g}", f"{residual:.1e}")
        for i, (value, residual) in enumerate(zip(pairs.values, pairs.residuals))
    ]
    print_table("eigenvalues", ("", "value", "residual ‖Av − λv‖"), rows)
    screen = console()
    word = "all residuals are" if pairs.success else "NOT all residuals are"
    screen.print(f"{word} within {pairs.allowed:.1e}", markup=False, soft_wrap=True)
    if pairs.result is not None:
        r = pairs.result
        counts = f"{r.nit} iterations, {r.nfev} values, {r.njev} gradients, {r.seconds:.1f} s"
        screen.print(f"{counts}; {r.message}", markup=False, soft_wrap=True)
    if output is not None:
        screen.print(f"written: {output}", markup=False, soft_wrap=True)


def show_json(pairs: Eigenpairs, output: Path | None) -> None:
    r = pairs.result
    print_json(
        {
            "success": pairs.success,
            "values": pairs.values.tolist(),
            "residuals": pairs.residuals.tolist(),
            "allowed_residual": pairs.allowed,
            "status": "CONVERGED" if r is None else r.status.name,
            "iterations": 0 if r is None else r.nit,
            "function_evaluations": 0 if r is None else r.nfev,
            "gradient_evaluations": 0 if r is None else r.njev,
            "seconds": 0.0 if r is None else r.seconds,
            "output": None if output is None else str(output),
        }
    )
