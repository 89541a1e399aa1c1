"""The benchmark measures what it says: counts, stopping norm, limits, profiles."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import stiefel
from stiefel.cli.app import app
from stiefel.solvers import METHODS

pytest.importorskip("stiefel_experiments", reason="needs pip install ./experiments")

from stiefel_experiments import Request, perform
from stiefel_experiments.bench import measures, peer_scipy, report, solvers
from stiefel_experiments.bench import runs as bench_runs
from stiefel_experiments.bench.meter import Meter, OutOfTime, Reached
from stiefel_experiments.bench.problems import PROBLEMS
from stiefel_experiments.bench.runs import FORMAT, Extent, Run, measure, plan
from stiefel_experiments.bench.solvers import ALL, Solver

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks"
QUICK = [problem for problem in PROBLEMS.values() if problem.quick]


def meter(name="quick-procrustes", limit=60.0, stops=True):
    problem = PROBLEMS[name]
    X0 = problem.start(0)
    return Meter(problem, X0, limit, stops), X0


def test_meter_counts_points_once():
    m, X0 = meter()
    Y = m.problem.start(1)
    m.value(X0)
    m.gradient(X0.copy())  # the same point in another array: the value is held already
    m.value_and_gradient(X0)
    assert (m.points, m.values, m.gradients) == (1, 1, 1)
    m.value(Y)
    m.value(X0)  # the last point with a gradient is still held
    assert (m.points, m.values, m.gradients) == (2, 2, 1)
    m.hessp(X0, Y)
    assert m.hessian_products == 1


def test_meter_hands_out_its_own_arrays():
    m, X0 = meter()
    G = m.gradient(X0)
    expected = G.copy()
    G[:] = 0  # a library may overwrite what it was given
    np.testing.assert_array_equal(m.gradient(X0), expected)


def test_meter_stops_at_the_first_point_that_passes():
    m, X0 = meter()
    solution = stiefel.minimize(m.problem.objective, X0, method="lbfgs", rtol=1e-10).x
    m.value_and_gradient(X0)
    with pytest.raises(Reached):
        m.value_and_gradient(solution)
    assert m.relative_norm(m.x) <= m.problem.rtol


def test_meter_judges_infeasible_points_at_the_nearest_feasible_one():
    m, X0 = meter()
    solution = stiefel.minimize(m.problem.objective, X0, method="lbfgs", rtol=1e-10).x
    with pytest.raises(Reached):
        m.value_and_gradient(solution * (1 + 1e-9))
    assert stiefel.Stiefel().defect(m.x) < 1e-14
    other, _ = meter()
    other.value_and_gradient(1e-12 * solution)  # a tiny gradient at a point far from feasible
    assert other.x is None


def test_meter_ends_runs_that_take_too_long():
    m, X0 = meter(limit=-1.0)
    with pytest.raises(OutOfTime):
        m.value(X0)


@pytest.mark.parametrize("problem", QUICK, ids=lambda p: p.name)
def test_gradients_and_hessians_of_the_instances(problem):
    X, f = problem.start(3), problem.objective
    V = np.random.default_rng(0).standard_normal(X.shape)
    h = 1e-6
    slope = (f.value(X + h * V) - f.value(X - h * V)) / (2 * h)
    assert slope == pytest.approx(np.vdot(f.value_and_gradient(X)[1], V), rel=1e-6)
    change = f.value_and_gradient(X + h * V)[1] - f.value_and_gradient(X - h * V)[1]
    np.testing.assert_allclose(
        f.hessp(X, V), change / (2 * h), atol=1e-5 * np.abs(change).max() / h
    )


def test_mixed_columns_are_the_same_problem():
    mixed = PROBLEMS["table1-mixed"].objective
    X = PROBLEMS["table1"].start(0)
    f, G = PROBLEMS["table1"].objective.value_and_gradient(X @ mixed.Q)
    assert mixed.value_and_gradient(X)[0] == pytest.approx(f, rel=1e-12)
    np.testing.assert_allclose(mixed.value_and_gradient(X)[1] @ mixed.Q, G, atol=1e-10)


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 3)])
def test_gradient_of_the_polar_map(shape):
    rng = np.random.default_rng(5)
    Z, C, V = (rng.standard_normal(shape) for _ in range(3))

    def f(Z):
        return float(np.vdot(C, peer_scipy.polar(Z)[0] ** 3))

    X, basis, s = peer_scipy.polar(Z)
    G = peer_scipy.pull_back(X, basis, s, 3 * C * X**2)
    h = 1e-6
    assert (f(Z + h * V) - f(Z - h * V)) / (2 * h) == pytest.approx(np.vdot(G, V), rel=1e-6)


@pytest.mark.parametrize("solver", list(ALL))
def test_every_solver_solves_a_quick_problem(solver):
    if (missing := ALL[solver].missing()) is not None:
        pytest.skip(missing)
    record = measure(Run("quick-sphere", solver, 0, 30.0))
    assert record["status"] == "CONVERGED", record
    problem = PROBLEMS["quick-sphere"]
    assert record["relative_gradient"] <= 1.01 * problem.rtol
    assert record["feasibility"] <= 1e-12
    assert record["value"] == pytest.approx(problem.objective.minimum, rel=1e-7)


def test_our_counts_are_those_of_the_result():
    problem, m = PROBLEMS["quick-procrustes"], meter(stops=False)[0]
    result = stiefel.minimize(m, problem.start(0), method="accelerated", rtol=problem.rtol)
    assert result.success
    assert result.nfev >= m.values  # a point evaluated twice is one point for the meter
    assert m.points <= m.values and m.gradients <= result.njev


@pytest.mark.parametrize(
    ("seconds", "expected"), [([0.03, 0.01, 0.02, 0.04, 0.05], 0.01), ([0.2], 0.2)]
)
def test_the_least_time_of_a_short_run_counts(seconds, expected, monkeypatch):
    left = iter(seconds)
    found = lambda run: {"status": "CONVERGED", "cpu_seconds": next(left)}
    monkeypatch.setattr(bench_runs, "measure", found)
    monkeypatch.setattr(bench_runs, "_warm_up", lambda solver: None)
    assert bench_runs.execute(Run("quick-sphere", "lbfgs", 0, 1.0))["cpu_seconds"] == expected
    assert next(left, None) is None


def test_a_limit_and_an_error_are_results(monkeypatch):
    assert measure(Run("quick-sphere", "gradient-descent", 0, 1e-3))["status"] == "TIME_LIMIT"

    def broken(meter, X0):
        raise RuntimeError("no")

    monkeypatch.setattr(Solver, "load", lambda self: broken)
    record = measure(Run("quick-sphere", "lbfgs", 0, 1.0))
    assert (record["status"], record["message"]) == ("FAILED", "RuntimeError: no")
    monkeypatch.setattr(Solver, "load", lambda self: lambda meter, X0: X0)
    assert measure(Run("quick-sphere", "lbfgs", 0, 1.0))["status"] == "STOPPED"


def test_plan_covers_every_method_and_says_what_it_leaves_out(monkeypatch):
    runs, _ = plan(Extent(starts=2))
    assert {run.solver for run in runs} >= set(solvers.METHODS)
    assert set(solvers.METHODS) == set(METHODS)
    assert [run.start for run in runs] == sorted(run.start for run in runs)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    runs, left_out = plan(Extent(solvers=["pymanopt-cg-hs"]))
    assert runs == [] and "pymanopt is not installed" in left_out[0]
    with pytest.raises(ValueError, match="unknown solver 'pymanopt'"):
        plan(Extent(solvers=["pymanopt"]))


def _record(problem, solver, points, status="CONVERGED"):
    return {"run": {"problem": problem, "solver": solver, "start": 0, "limit": 1.0},
            "status": status, "points": points, "hessian_products": 0.0, "value": 1.0}  # fmt: skip


def test_comparisons_use_the_starts_that_all_solvers_had():
    records = [_record("sphere", "auto", 50), _record("sphere", "lbfgs", 25)]
    records.append(_record("sphere", "auto", 1))
    records[-1]["run"]["start"] = 1
    assert measures.shared_starts(records) == records[:2]
    records.append(_record("sphere", "arpack", 1))  # an eigensolver is in no comparison
    records[-1]["run"]["start"] = 7
    assert measures.shared_starts(records) == records[:2]
    records.append(_record("sphere", "lbfgs", 25))
    records[-1]["run"]["start"] = 1
    records.append(_record("sphere", "cg", 25, "TIME_LIMIT"))  # never the best: not repeated
    assert [r for r in measures.shared_starts(records) if r["run"]["start"] == 1] == [
        records[2], records[4]
    ]  # fmt: skip


def test_performance_profile_by_hand():
    records = [
        _record("table1", "auto", 100), _record("table1", "lbfgs", 300),
        _record("sphere", "auto", 50), _record("sphere", "lbfgs", 25),
        _record("table2", "auto", 10), _record("table2", "lbfgs", 1, "TIME_LIMIT"),
    ]  # fmt: skip
    curves = measures.profile(records, measures.evaluations, ["auto", "lbfgs"])
    assert curves == {"auto": ([1.0, 1.0, 2.0], 3), "lbfgs": ([1.0, 3.0], 3)}
    axes = report.draw(records, "evaluations")
    steps = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert steps["stiefel lbfgs (2/3)"].tolist() == [[1, 0], [1, 1 / 3], [3, 2 / 3], [100, 2 / 3]]
    assert axes.get_title(loc="left")


def test_a_picture_has_at_most_six_curves():
    records = [_record("sphere", solver, 10 + i) for i, solver in enumerate(ALL)]
    assert len(report.drawn(records)) == 6
    assert len({ALL[name].library for name in report.drawn(records)}) == 5


def test_a_run_that_met_a_shorter_limit_is_run_again():
    late = _record("sphere", "auto", 10, "TIME_LIMIT")  # its limit was one second
    assert Run("sphere", "auto", 0, 60.0).replaces(late)
    assert not Run("sphere", "auto", 0, 1.0).replaces(late)
    assert not Run("sphere", "auto", 0, 60.0).replaces(late | {"status": "STOPPED"})


def test_the_protocol():
    runs, _ = plan(Extent())
    assert {run.start for run in runs} == set(range(10))
    assert all(run.limit >= 60 for run in runs)


def test_quick_benchmark_from_end_to_end(tmp_path):
    extent = Extent(quick=True, solvers=("auto", "lbfgs", "scipy-lbfgs", "arpack"))
    outcome = perform(report.benchmark(extent)[0], Request(tmp_path))
    assert len(outcome.records) == len(plan(extent)[0])
    assert not [
        r for r in outcome.records if r["run"]["solver"] == "auto" and r["status"] != "CONVERGED"
    ]
    lines = (tmp_path / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines]
    text = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "quick-kohn-sham" in text and "SciPy ARPACK¹" in text
    assert "SciPy L-BFGS-B" in outcome.report.table.rows[0][6]
    for name in ("profile-evaluations.svg", "profile-cpu.png"):
        assert (tmp_path / name).stat().st_size > 1000
    again = perform(report.benchmark(extent)[0], Request(tmp_path, resume=True))
    assert again.records == outcome.records == FORMAT.load(tmp_path / "bench.jsonl")
    assert again.found_before == len(lines)


@pytest.mark.parametrize("script", ["overhead.py", "memory.py"])
def test_scripts_run(script):
    path = Path(__file__).parent.parent / "benchmarks" / script
    command = [sys.executable, str(path), "lbfgs", "--n", "200", "--k", "3", "--iterations", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert any(line.startswith("lbfgs: ") for line in done.stdout.splitlines())
    if script == "overhead.py":  # the reference's iterates were compared with the library's
        assert ("in C++: " in done.stdout) != ("no C++ reference" in done.stdout)


def test_command(tmp_path):
    arguments = ["bench", "--problem", "quick-sphere", "--solver", "auto", "--solver", "lbfgs"]
    arguments += ["--starts", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "quick-sphere" in done.output and "more than 1.1× behind" in done.output.replace(
        "\n", " "
    )
    again = CliRunner().invoke(app, [*arguments, "--redraw", "--json"])
    document = json.loads(again.stdout)
    assert [record["status"] for record in document["records"]] == ["CONVERGED"] * 2


def test_command_refuses_unknown_names(tmp_path):
    done = CliRunner().invoke(app, ["bench", "--solver", "nobody", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "unknown solver 'nobody'" in done.output


@pytest.mark.skipif(not PAGE.exists(), reason="no committed records")
def test_the_page_shows_the_records():
    """The committed tables are those of the committed records."""
    found = FORMAT.load(PAGE / "bench.jsonl")
    assert report.report(found).files["bench.md"] == (PAGE / "bench.md").read_bytes()
    assert {record["run"]["solver"] for record in found} <= set(ALL)
