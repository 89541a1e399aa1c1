"""Molecule files and names reach PySCF as numbers and names; nothing in them is evaluated."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stiefel.applications.scf.files import check_basis, check_functional, read_xyz

CODE = "__import__('pathlib').Path('owned').touch()or(0)"
# What PySCF parses as a basis file, with code in the place of an exponent.
BASIS_FILE = f"#BASIS SET: x\nH    S\n  ({CODE}),1.0   1.0\nEND\n"


def written(tmp_path, text):
    path = tmp_path / "molecule.xyz"
    path.write_text(text, encoding="utf-8")
    return path


def test_atoms_are_read(tmp_path):
    path = written(tmp_path, "2\na comment with __import__\nO 0 -1.5e0 +.5 extra\n h1\t1 2. 3\n\n")
    assert read_xyz(path) == [("O", (0.0, -1.5, 0.5)), ("h1", (1.0, 2.0, 3.0))]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"1\n\nH 0 0 {CODE}\n", "is not a number"),
        ("1\n\nH 0 0 nan\n", "is not a number"),
        ("1\n\nH 0 0 1e999\n", "too far away"),
        ("1\n\nH 0 0 ٣\n", "is not a number"),
        ("1\n\nH 0 0 1_0\n", "is not a number"),
        ("1\n\nprint(1) 0 0 0\n", "expected a symbol"),
        ("1\n\nH 0 0\n", "expected a symbol"),
        ("2\n\nH 0 0 0\n", "announces 2 atoms and has 1"),
        ("1\n\nH 0 0 0\nH 0 0 1\n", "announces 1 atoms and has 2"),
        ("0\n\n", "the number of atoms"),
        ("H 0 0 0\n", "the number of atoms"),
        ("", "the number of atoms"),
    ],
)
def test_anything_else_is_refused(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_xyz(written(tmp_path, text))


def test_a_folder_and_bytes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not a file"):
        read_xyz(tmp_path)
    (tmp_path / "bytes.xyz").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not text"):
        read_xyz(tmp_path / "bytes.xyz")


@given(st.text(max_size=60))
def test_a_coordinate_is_a_finite_number_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("xyz") / "molecule.xyz"
    path.write_bytes(f"1\n\nH 0 0 {text}\n".encode(errors="replace"))
    try:
        ((_, position),) = read_xyz(path)
    except ValueError:
        return
    assert all(map(math.isfinite, position))


@pytest.mark.parametrize("name", ["", "../secret", "a.nw", "x'; import os", "sto-3g\n", "a" * 100])
def test_a_basis_is_a_name(name):
    with pytest.raises(ValueError, match="not a name"):
        check_basis(name)


@pytest.mark.parametrize("name", ["", "pbe;x", "__import__('os')", "a" * 300])
def test_a_functional_is_a_name(name):
    with pytest.raises(ValueError, match="not a name"):
        check_functional(name)


@pytest.mark.parametrize("name", ["6-31G**", "cc-pvdz", "def2-svp", "aug-cc-pVTZ"])
def test_common_names_pass(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert check_basis(name) == name
    assert check_functional("0.2*HF + 0.8*lda, vwn") and check_functional("wb97x-d3bj")


# -- with PySCF ------------------------------------------------------------------------------------


def test_a_hostile_molecule_runs_nothing(tmp_path):
    pytest.importorskip("pyscf", reason="PySCF is not installed")
    from cli_tools import stiefel_here

    written(tmp_path, f"2\n\nH 0 0 0\nH 0 0 {CODE}\n")
    run = stiefel_here("scf", "molecule.xyz", "--basis", "sto-3g", cwd=tmp_path)
    assert run.exit_code == 2 and "is not a number" in run.output
    assert not (tmp_path / "owned").exists()


def test_a_planted_basis_file_runs_nothing(tmp_path):
    pytest.importorskip("pyscf", reason="PySCF is not installed")
    from cli_tools import stiefel_here

    written(tmp_path, "2\n\nH 0 0 0\nH 0 0 0.74\n")
    (tmp_path / "sto-3g").write_text(BASIS_FILE)
    run = stiefel_here("scf", "molecule.xyz", "--basis", "sto-3g", cwd=tmp_path)
    assert run.exit_code == 2 and "would read the basis from it" in run.output
    assert not (tmp_path / "owned").exists()


def test_the_second_wall(tmp_path, monkeypatch):
    """PySCF itself refuses, whoever hands it such a text."""
    gto = pytest.importorskip("pyscf.gto", reason="PySCF is not installed")
    from stiefel.applications.scf.files import forbid_evaluation

    forbid_evaluation()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted").write_text(BASIS_FILE)
    with pytest.raises(ValueError, match="parse"):
        gto.M(atom=f"H 0 0 0; H 0 0 {CODE}", basis="sto-3g", verbose=0)
    with pytest.raises(Exception):  # noqa: B017, PT011
        gto.M(atom="H 0 0 0; H 0 0 1", basis="planted", verbose=0)
    assert not (tmp_path / "owned").exists()
