"""``stiefel scf`` and ``stiefel modes``."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from cli_tools import stiefel_here
from stiefel.applications.compressed_modes import closed_form

needs_pyscf = pytest.mark.skipif(find_spec("pyscf") is None, reason="PySCF is not installed")
WATER = "3\n\nO 0 0 0.1173\nH 0 0.7572 -0.4692\nH 0 -0.7572 -0.4692\n"


@pytest.fixture
def water(tmp_path):
    (tmp_path / "water.xyz").write_text(WATER)
    return tmp_path


@needs_pyscf
def test_scf_reports_energy_builds_and_stability(water):
    run = stiefel_here("scf", "water.xyz", "--basis", "cc-pvdz", "--json", cwd=water)
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert document["energy"] == pytest.approx(-76.0267720534, abs=1e-9)
    assert document["stable"] is True
    assert document["fock_builds"] <= 30


@needs_pyscf
@pytest.mark.parametrize("method", ["uhf", "rks"])
def test_scf_methods_and_kick(method, water):
    arguments = ("--basis", "sto-3g", "--method", method, "--xc", "lda,vwn", "--kick", "0.05")
    run = stiefel_here("scf", "water.xyz", *arguments, cwd=water)
    assert run.exit_code == 0, run.output
    assert "a minimum" in run.stdout


@needs_pyscf
def test_scf_from_several_starts(water):
    arguments = ("--basis", "sto-3g", "--method", "rohf", "--spin", "2", "--starts", "2", "--json")
    run = stiefel_here("scf", "water.xyz", *arguments, cwd=water)
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert len(document["minima"]) == 2
    assert document["energy"] == pytest.approx(min(m["energy"] for m in document["minima"]))


@needs_pyscf
def test_scf_that_does_not_converge_says_so(water):
    run = stiefel_here("scf", "water.xyz", "--basis", "sto-3g", "--maxfun", "3", cwd=water)
    assert run.exit_code == 1


@needs_pyscf
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.xyz", "--basis", "sto-3g"), "not a file"),
        (("water.xyz", "--basis", "no-such-basis"), "PySCF cannot build"),
        (("water.xyz", "--basis", "sto-3g", "--spin", "2"), "--method uhf"),
        (("water.xyz", "--basis", "sto-3g", "--mix", "0.5"), "unrestricted"),
        (("water.xyz", "--basis", "sto-3g", "--method", "rks", "--xc", "nosuch"), "functional"),
    ],
)
def test_scf_refuses(arguments, sentence, water):
    run = stiefel_here("scf", *arguments, cwd=water)
    assert run.exit_code == 2
    assert sentence in run.output


def test_modes(tmp_path):
    grid = ("--points", 200, "--length", 30, "--number", 2, "--mu", 5)
    files = ("-o", "modes.npz", "--plot", "modes.png")
    run = stiefel_here("modes", *grid, *files, "--json", cwd=tmp_path)
    assert run.exit_code == 0, run.output
    energies = json.loads(run.stdout)["energies"]
    assert energies == pytest.approx([closed_form(5.0, 1).energy] * 2, rel=2e-3)
    assert (tmp_path / "modes.png").exists()
    with np.load(tmp_path / "modes.npz") as saved:
        assert saved["functions"].shape == (2, 200)


def test_modes_in_two_dimensions_with_wells(tmp_path):
    grid = ("--points", 20, "--points", 20, "--length", 10, "--length", 10, "--number", 2)
    potential = ("--well", 2, "--well", 1, "--depth", 2)
    run = stiefel_here("modes", *grid, "--mu", 20, *potential, cwd=tmp_path)
    assert run.exit_code == 0, run.output
    assert "evaluations" in run.stdout


def test_modes_refuses(tmp_path):
    arguments = ("--points", 20, "--length", 10, "--length", 10, "--number", 2, "--mu", 5)
    run = stiefel_here("modes", *arguments, cwd=tmp_path)
    assert run.exit_code == 2
    assert "once for each dimension" in run.output
