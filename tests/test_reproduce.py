"""Records, resuming, fits, figures, tables and verdicts of the reproduction."""

import json
import math
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from cli_tools import COMMAND, environment, stiefel

pytest.importorskip("stiefel_experiments", reason="needs pip install ./experiments")

from stiefel_experiments import Request, perform
from stiefel_experiments.reproduce import artefacts
from stiefel_experiments.reproduce.artefacts import artefact
from stiefel_experiments.reproduce.runs import (
    ARTEFACTS,
    FIGURE_METHODS,
    FORMAT,
    LABELS,
    UNLUCKY,
    Extent,
    Run,
    plan,
    problem,
    start_point,
)

SMALL = ("--quick", "--starts", "3", "--largest", "320", "--descent-largest", "100")
TIMINGS = ("seconds", "cpu_seconds")  # what differs between two runs of the same spec
COMMITTED = Path(__file__).parent.parent / "docs" / "reproduction"


def without_timings(path: Path) -> list[dict[str, Any]]:
    kept = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        kept.append({k: v for k, v in record.items() if k not in TIMINGS})
    return kept


def made_up(run: Run, iterations: int, status: str = "CONVERGED") -> dict[str, Any]:
    """A record with chosen counts."""
    return {
        "run": json.loads(run.key),
        "condition_number": run.condition_number,
        "status": status,
        "iterations": iterations,
        "function_evaluations": 3 * iterations,
        "gradient_evaluations": iterations + 1,
        "restarts": 2,
        "seconds": 1.0,
        "cpu_seconds": iterations / 1000,
    }


# -- plans ---------------------------------------------------------------------------------


def test_the_plans_are_the_papers_protocol() -> None:
    one = plan("figure1", Extent())
    assert sorted({r.n for r in one}) == list(np.geomspace(100, 10_000, 21).round().astype(int))
    assert {(r.k, r.growth_threshold, r.rtol, r.scale) for r in one} == {(1, 0.7, 1e-10, 0.5)}
    assert len(one) == 21 * 3 * 50
    two = plan("figure2", Extent())
    assert {r.k for r in two} == {10} and max(r.n for r in two) == 10_000
    for name, n, k in (("table1", 1000, 10), ("table2", 2000, 20)):
        runs = plan(name, Extent())
        assert {(r.n, r.k, r.scale, r.growth_threshold, r.rtol) for r in runs} == {
            (n, k, 1.0, 0.9, 1e-9)
        }
        assert len({r.start for r in runs}) == 10
    scales = [r.scale for r in plan("scale", Extent()) if r.n == 1000]
    assert scales == [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.176, 0.5]


@pytest.mark.parametrize("artefact", ARTEFACTS)
def test_every_run_of_a_plan_is_different_and_survives_json(artefact: str) -> None:
    runs = plan(artefact, Extent(quick=True))
    assert len({r.key for r in runs}) == len(runs) == len({r.order for r in runs})
    assert [Run(**json.loads(r.key)) for r in runs] == runs
    assert all(r.cost > 0 for r in runs)


@pytest.mark.parametrize("artefact", ["figure1", "figure2", "table1", "scale"])
def test_condition_numbers_agree_with_the_general_formula(artefact: str) -> None:
    run = plan(artefact, Extent(quick=True))[0]
    assert run.condition_number == pytest.approx(problem(run).condition_number, rel=1e-12)


def test_the_start_depends_on_its_number_only() -> None:
    run = plan("table1", Extent(quick=True))[0]
    X = start_point(run)
    np.testing.assert_array_equal(X, start_point(replace(run, method="cg", scale=0.5)))
    assert np.abs(X - start_point(replace(run, start=run.start + 1))).max() > 0.01
    assert np.abs(X - start_point(replace(run, seed=1))).max() > 0.01


def test_the_scale_of_f_is_the_printed_half() -> None:
    from stiefel.objectives import Brockett

    run = plan("figure2", Extent(quick=True))[0]
    X = start_point(run)
    assert problem(run).value(X) == pytest.approx(Brockett.linear(run.n, 10, half=True).value(X))


# -- runs, records and resuming ------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    result = stiefel("reproduce", "figure1", *SMALL, "--out", out, "--jobs", 2, "--json")
    assert result.returncode == 0, result.stderr
    (out / "answer.json").write_text(result.stdout)
    return out


def test_killed_half_way_and_resumed_is_the_same_record(
    uninterrupted: Path, tmp_path: Path
) -> None:
    arguments = [*COMMAND, "reproduce", "figure1", *SMALL, "--out", str(tmp_path)]
    process = subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    record = tmp_path / "figure1.jsonl"
    for _ in range(2000):
        if record.exists() and record.read_text().count("\n") >= 3:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    done = record.read_text()
    whole = without_timings(uninterrupted / "figure1.jsonl")
    assert 3 <= done.count("\n") < len(whole)
    record.write_text(done + done.splitlines()[0][:100])  # a line that the crash cut short
    result = stiefel("reproduce", "figure1", *SMALL, "--out", tmp_path, "--resume", "--json")
    assert result.returncode == 0, result.stderr
    assert without_timings(record) == whole
    assert json.loads(result.stdout)["figure1"]["executed"] == len(whole) - done.count("\n")
    kept = [json.loads(line) for line in done.splitlines()]
    assert all(k in [json.loads(line) for line in record.read_text().splitlines()] for k in kept)
    csv = (tmp_path / "figure1.csv").read_text()
    assert csv == (uninterrupted / "figure1.csv").read_text()


def test_a_record_says_what_was_run_and_nothing_about_whose_machine(uninterrupted: Path) -> None:
    text = (uninterrupted / "figure1.jsonl").read_text()
    for record in map(json.loads, text.splitlines()):
        assert record["status"] == "CONVERGED"
        assert record["relative_gradient"] <= 1e-10
        assert abs(record["error"]) < 1e-9 and record["feasibility"] < 1e-12
        assert record["gradient_evaluations"] == record["iterations"] + 1
        assert record["parameters"]["growth_threshold"] == 0.7
        assert {"stiefel", "numpy", "scipy", "python"} <= set(record["versions"])
        assert record["machine"]["threads"] == "1"
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text and str(uninterrupted) not in text


def test_without_resume_earlier_records_are_set_aside(uninterrupted: Path, tmp_path: Path) -> None:
    record = tmp_path / "figure1.jsonl"
    record.write_text((uninterrupted / "figure1.jsonl").read_text())
    extent = Extent(quick=True, starts=1, largest=100, descent_largest=100)
    outcome = perform(artefact("figure1", extent), Request(tmp_path))
    assert outcome.set_aside is not None
    assert outcome.set_aside.read_text() == (uninterrupted / "figure1.jsonl").read_text()
    assert len(outcome.records) == len(FIGURE_METHODS) and outcome.found_before == 0


def test_the_figures_data_are_those_of_the_records(uninterrupted: Path) -> None:
    lines = [json.loads(x) for x in (uninterrupted / "figure1.jsonl").read_text().splitlines()]
    answer = json.loads((uninterrupted / "answer.json").read_text())["figure1"]
    found = artefacts.curves(lines)
    axes = artefacts.draw("figure1", found)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    for curve, document, drawn in zip(found, answer["data"], axes.containers, strict=True):
        logs: dict[float, list[float]] = {}
        for r in lines:
            if r["run"]["method"] == curve.method:
                logs.setdefault(r["run"]["n"] - 1.0, []).append(math.log(r["iterations"]))
        kappa = np.array(sorted(logs))
        mean = np.array([np.mean(logs[key]) for key in kappa])
        x, y = drawn.lines[0].get_data()
        np.testing.assert_allclose(x, kappa, rtol=0.02)  # two curves are drawn side by side
        np.testing.assert_allclose(y, np.exp(mean), rtol=1e-12)
        points = document["points"]
        np.testing.assert_allclose([p["mean_log_iterations"] for p in points], mean)
        assert [p["condition_number"] for p in points] == list(kappa)
        assert document["method"] == curve.method
    for suffix, magic in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        assert (uninterrupted / f"figure1.{suffix}").read_bytes().startswith(magic)
    assert "3 starts at n = 100–316" in (uninterrupted / "figure1.svg").read_text()


def test_the_accelerated_methods_beat_gradient_descent(uninterrupted: Path) -> None:
    lines = FORMAT.load(uninterrupted / "figure1.jsonl")
    said = [v for v in artefacts.judge_figure(artefacts.curves(lines)) if "outperforms" in v.claim]
    assert len(said) == 2 and all(v.holds for v in said)


def test_a_run_that_does_not_converge_is_exit_code_one(uninterrupted: Path, tmp_path: Path) -> None:
    lines = (uninterrupted / "figure1.jsonl").read_text().splitlines()
    first = json.loads(lines[0]) | {"status": "MAX_ITERATIONS"}
    (tmp_path / "figure1.jsonl").write_text("\n".join([json.dumps(first), *lines[1:], ""]))
    result = stiefel("reproduce", "figure1", "--redraw", "--out", tmp_path)
    assert result.returncode == 1
    assert "not converged: function-restart, n = 100, start 1" in result.stdout


# -- fits, tables, verdicts ----------------------------------------------------------------


def test_the_fit_agrees_with_linregress() -> None:
    rng = np.random.default_rng(1)
    runs = plan("figure1", Extent(starts=4))
    lines = [made_up(r, int(20 * r.condition_number**0.48 * rng.uniform(0.8, 1.2))) for r in runs]
    for curve in artefacts.curves(lines):
        x = np.log([p.condition_number for p in curve.points])
        y = [
            np.mean([math.log(r["iterations"]) for r in lines if r["run"]["n"] == p.n
                     and r["run"]["method"] == curve.method])
            for p in curve.points
        ]  # fmt: skip
        expected = scipy.stats.linregress(x, y)
        assert curve.fit is not None
        assert curve.fit.slope == pytest.approx(expected.slope, rel=1e-10)
        assert curve.fit.slope_error == pytest.approx(expected.stderr, rel=1e-8)
        assert curve.fit.intercept == pytest.approx(expected.intercept, rel=1e-10)


def test_runs_that_did_not_converge_are_counted_and_not_averaged() -> None:
    runs = [r for r in plan("figure1", Extent(starts=2)) if r.method == "function-restart"]
    lines = [made_up(r, 100 * r.start, "CONVERGED" if r.start == 1 else "MAX_TIME") for r in runs]
    (curve,) = artefacts.curves(lines)
    assert curve.unconverged == 21
    assert all(p.mean_log_iterations == math.log(100) and p.starts == 1 for p in curve.points)
    assert "21 not converged" in artefacts.extent_lines([curve])[0]


@pytest.mark.parametrize(("factor", "holds"), [(0.5, True), (2.0, False)])
def test_the_verdict_on_a_table_follows_its_numbers(factor: float, holds: bool) -> None:
    runs = plan("table1", Extent(starts=3))
    lines = [
        made_up(r, int((factor if r.method == "function-restart" else 1.0) * 15_000)) for r in runs
    ]
    said = {v.claim: v for v in artefacts.judge_table(artefacts.means(lines))}
    for name in ("gradients", "function values", "seconds"):
        assert said[f"function restart beats L-BFGS in {name}"].holds is holds
    assert any(f"ratio {factor:.2f}" in str(v) and "in the paper" in str(v) for v in said.values())


def test_a_table_puts_the_papers_numbers_beside_ours() -> None:
    lines = [made_up(r, 12_345) for r in plan("table2", Extent(starts=2))]
    table = artefacts.comparison(artefacts.means(lines))
    first = dict(zip(("method", "starts", "ours", "paper"), table.rows[0]))
    assert first == {
        "method": LABELS["function-restart"],
        "starts": "2",
        "ours": "12345.0",
        "paper": "28758.8",
    }
    assert "| 84767.2 |" in table.markdown()
    assert table.csv().count("\n") == len(table.rows) + 1


def test_the_lattice_is_the_papers() -> None:
    # On Table 2 with the printed ½ the lattice is {0.82, 1.40, 2.38}/L.
    np.testing.assert_allclose(artefacts.lattice(2000, 20, 0.5), [0.82, 1.40, 2.38], atol=0.01)
    unlucky = artefacts.lattice(1000, 10, UNLUCKY)
    np.testing.assert_allclose(unlucky, artefacts.lattice(2000, 20, 0.5), rtol=1e-3)
    a, b = artefacts.lattice(1000, 10, 1.0), artefacts.lattice(1000, 10, 1.7)
    np.testing.assert_allclose(a, b)  # one period


# -- the committed record ------------------------------------------------------------------


@pytest.mark.skipif(not COMMITTED.exists(), reason="docs are not part of this checkout")
@pytest.mark.parametrize("name", ARTEFACTS)
def test_the_committed_pages_are_those_of_the_committed_records(name: str) -> None:
    report = artefact(name).report(FORMAT.load(COMMITTED / f"{name}.jsonl"))
    for file, data in report.files.items():
        if file.endswith((".csv", ".md")):
            assert (COMMITTED / file).read_bytes() == data, file
    assert sum(f.stat().st_size for f in COMMITTED.rglob("*")) < 6_000_000  # 50 starts, as printed


@pytest.mark.skipif(not COMMITTED.exists(), reason="docs are not part of this checkout")
@pytest.mark.parametrize("name", ["table1", "table2", "scale"])
def test_the_committed_records_are_complete_and_can_be_resumed(name: str, tmp_path: Path) -> None:
    record = tmp_path / f"{name}.jsonl"
    record.write_bytes((COMMITTED / record.name).read_bytes())
    outcome = perform(artefact(name), Request(tmp_path, resume=True))
    assert outcome.found_before == len(outcome.records)  # nothing was run
    assert without_timings(record) == without_timings(COMMITTED / record.name)


def test_the_tables_have_a_row_for_the_default_method() -> None:
    rows = artefacts.means(FORMAT.load(COMMITTED / "table1.jsonl"))
    auto, others = rows[-1], rows[:-1]
    assert (auto.method, auto.starts, auto.unconverged) == ("auto", 10, 0)
    assert all(5 * auto.function_evaluations < row.function_evaluations for row in others)
