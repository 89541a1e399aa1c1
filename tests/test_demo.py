"""The first command a newcomer runs: its table, its sentence, its picture, and what it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

import stiefel
from stiefel.cli import demo
from stiefel.objectives import Brockett

ROOT = Path(__file__).parent.parent


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(demo, "N", 60)
    monkeypatch.setattr(demo, "K", 3)
    monkeypatch.setattr(demo, "THEIRS", {})


def cli(*arguments, cwd, columns="80"):
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": columns, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "stiefel", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_version_and_module(tmp_path):
    done = cli("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"stiefel {stiefel.__version__}\n")


def test_every_method_solves_the_same_problem(small):
    runs = demo.run_all(limit=60.0, seed=0)
    assert [run.method for run in runs] == list(demo.OURS)
    assert all(run.converged for run in runs)
    exact = Brockett.table(60, 3).minimum
    assert all(abs(run.value - exact) < 1e-6 * abs(exact) for run in runs)
    for run in runs:
        x, y = run.curve
        assert y[0] == 1.0 and y[-1] <= demo.RTOL and x[-1] == run.evaluations
    assert "times as many" in demo.conclusion(runs)


def test_the_table_fits_and_nothing_is_broken(small, capsys, tmp_path):
    runs = demo.run_all(limit=60.0, seed=0)
    demo.draw_runs(runs, tmp_path / "demo.png")
    demo.show_runs(runs, tmp_path / "demo.png", 60.0)
    out = capsys.readouterr().out
    table = out.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "\x1b" not in out and "Algorithm 1 of the paper" in table and "demo.png" in out
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_a_limit_is_told(small):
    runs = demo.run_all(limit=1e-9, seed=0)
    assert not runs[0].converged and "--limit" in demo.conclusion(runs)
    slow = [runs[0]._replace(converged=True), *runs[1:]]
    assert "no other method was done" in demo.conclusion(slow)


def test_other_libraries_are_counted_on_a_tape(monkeypatch):
    """A gradient method nobody here wrote, as a stand-in: each new point counts once."""
    import types

    objective, X0 = Brockett.table(30, 2), stiefel.random_point(30, 2, seed=0)

    def descend(tape, X):
        while True:
            f, G = tape.value(X), tape.gradient(X)
            assert np.isfinite(f)
            X = np.linalg.qr(X - 0.01 * G)[0]

    module = types.SimpleNamespace(SOLVERS={"descend": descend})
    monkeypatch.setattr(demo, "import_module", lambda name: module)
    run = demo.theirs("descent", "peer", "descend", objective, X0, 20.0, lambda share: None)
    assert run.converged and run.evaluations == len(run.curve[0]) == run.curve[0][-1]
    broken = types.SimpleNamespace(SOLVERS={})
    monkeypatch.setattr(demo, "import_module", lambda name: broken)
    assert demo.theirs("gone", "peer", "x", objective, X0, 1.0, lambda share: None) is None


@pytest.mark.slow
def test_the_demo_itself(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    done = cli("demo", "--json", "--picture", str(tmp_path / "p.png"), cwd=folder)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert runs[0]["converged"] and runs[0]["evaluations"] < 2000
    assert all(run["evaluations"] > 3 * runs[0]["evaluations"] for run in runs[1:])
    assert not list(folder.iterdir())  # no file is left unasked
