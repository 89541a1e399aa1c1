"""SciPy's habits: spellings that mean the same give the same run."""

import numpy as np
import pytest
import scipy.optimize

import stiefel
from stiefel import minimize
from stiefel.solvers import METHODS

A = np.diag(np.arange(1.0, 13.0))
W = np.arange(1.0, 4.0)
X0 = stiefel.random_point(12, 3, seed=3)


def fun(X):
    return float(np.sum(X * (A @ X) * W)), 2 * A @ X * W


def weighted(X, A, W):
    return float(np.sum(X * (A @ X) * W)), 2 * A @ X * W


def same(a, b):
    return np.array_equal(a.x, b.x) and (a.nit, a.nfev, a.status) == (b.nit, b.nfev, b.status)


PAIRS = {
    "args": ({"args": (A, W)}, {}),
    "tol": ({"tol": 1e-7}, {"gtol": 1e-7, "rtol": 0.0}),
    "gtol among the options": ({"options": {"gtol": 1e-7}}, {"gtol": 1e-7, "rtol": 0.0}),
    "gtol and rtol": ({"rtol": 1e-2, "options": {"gtol": 1e-9}}, {"gtol": 1e-9, "rtol": 1e-2}),
    "ftol": ({"options": {"ftol": 1e-3}}, {"ftol": 1e-3}),
    "no method": ({"method": None}, {}),
    "maxiter": ({"options": {"maxiter": 4}}, {"maxiter": 4}),
    "maxfun": ({"options": {"maxfun": 9}}, {"maxfun": 9}),
    "maxfev": ({"options": {"maxfev": 9}}, {"maxfun": 9}),
    "the solver's own besides": (
        {"method": "lbfgs", "options": {"maxcor": 3, "maxiter": 9}},
        {"method": "lbfgs", "options": {"memory": 3}, "maxiter": 9},
    ),
    "L-BFGS-B": ({"method": "L-BFGS-B"}, {"method": "lbfgs"}),
    "BFGS": ({"method": "BFGS"}, {"method": "lbfgs"}),
    "CG": ({"method": "CG"}, {"method": "cg"}),
    "trust-ncg": ({"method": "trust-ncg"}, {"method": "trust-region"}),
    "Newton-CG": ({"method": "Newton-CG"}, {"method": "trust-region"}),
    "capitals": ({"method": "Accelerated"}, {"method": "accelerated"}),
    "a class": ({"method": stiefel.LBFGS}, {"method": stiefel.LBFGS()}),
    "a class with options": (
        {"method": stiefel.LBFGS, "options": {"memory": 3}},
        {"method": stiefel.LBFGS(memory=3)},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_spellings_of_one_run(name):
    theirs, ours = PAIRS[name]
    a = minimize(weighted if "args" in theirs else fun, X0, **theirs)
    assert same(a, minimize(fun, X0, **ours))


def test_args_reach_every_function():
    value = lambda X, A, W: float(np.sum(X * (A @ X) * W))
    jac = lambda X, A, W: 2 * A @ X * W
    hessp = lambda X, V, A, W: 2 * A @ V * W
    given = {"jac": jac, "hessp": hessp, "method": "trust-region"}
    result = minimize(value, X0, args=(A, W), **given)
    assert result.success and result.nhev > 0
    single = minimize(lambda X, A: fun(X), X0, args=A)  # SciPy takes a single argument bare
    assert same(single, minimize(fun, X0))


def test_scipy_s_spellings_go_with_starts_escape_and_bounds():
    ours = minimize(fun, X0, rtol=0.0, gtol=1e-4, escape=True)
    theirs = minimize(weighted, X0, args=(A, W), tol=1e-4, options={"disp": False}, escape=True)
    assert theirs.success and same(ours, theirs)
    several = minimize(weighted, X0, args=(A, W), tol=1e-4, starts=2)
    assert several.success and several.fun == pytest.approx(ours.fun, abs=1e-6)
    bounded = minimize(weighted, X0, args=(A, W), tol=1e-4, bounds=(-0.9, 0.9))
    assert bounded.success and np.abs(bounded.x).max() < 0.9 + 1e-4


def test_args_are_not_for_objects():
    objective = stiefel.objectives.Brockett(np.arange(1.0, 13.0), W)
    with pytest.raises(TypeError, match="args= goes with a function"):
        minimize(objective, X0, args=(1,))


def test_disp_shows_progress_on_standard_error(capsys):
    minimize(fun, X0, disp=True)
    minimize(fun, X0, options={"disp": 1})
    out, err = capsys.readouterr()
    assert out == "" and err.count("CONVERGED") == 2
    minimize(fun, X0, disp=False)
    assert capsys.readouterr().err == ""


def test_a_callback_may_raise_stop_iteration():
    def callback(intermediate_result):
        if intermediate_result.nit == 3:
            raise StopIteration

    result = minimize(fun, X0, callback=callback)
    assert result.status == "STOPPED_BY_CALLBACK" and result.nit == 3


def test_the_same_call_as_in_scipy():
    """min tr(XᵀAXW) over unit vectors, by both: the constraint is ours, the call is the same."""
    free = lambda x, A: (x @ A @ x / (x @ x), 2 * (A @ x - (x @ A @ x) / (x @ x) * x) / (x @ x))
    x0 = stiefel.random_point(12, 1, seed=0)[:, 0]
    call = {
        "args": (A,),
        "jac": True,
        "method": "L-BFGS-B",
        "tol": 1e-8,
        "options": {"maxiter": 500},
    }
    theirs = scipy.optimize.minimize(free, x0, **call)
    ours = minimize(free, x0, manifold=stiefel.Sphere(), **call)
    assert ours.success and ours.fun == pytest.approx(theirs.fun, abs=1e-8)


def test_the_result_is_scipy_s():
    result = minimize(fun, X0)
    assert isinstance(result, scipy.optimize.OptimizeResult)
    assert isinstance(result, stiefel.Result)
    assert result.jac is result.grad is result["jac"]
    assert result.status == "CONVERGED" == str(result.status)
    assert result.status == 0 and int(result.status) == 0
    assert result.status != "MAX_TIME" and result.status != 1
    assert len({result.status, "CONVERGED"}) == 1
    with pytest.raises(AttributeError, match="gradient_norm"):
        result.gradientnorm  # noqa: B018


def test_a_result_travels():
    import copy
    import pickle

    result = minimize(fun, X0)
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert type(other) is stiefel.Result
        assert np.array_equal(other.x, result.x) and other.status is result.status


def test_a_result_shows_itself(tmp_path):
    result = minimize(fun, X0, method="accelerated")
    assert f"{result.nit}" in repr(result) and "array of shape (12, 3)" in repr(result)
    html = result._repr_html_()
    assert "<svg" in html and "polyline" in html and "CONVERGED" in html and "<script" not in html
    import xml.etree.ElementTree as ET

    ET.fromstring(html)  # well-formed
    pytest.importorskip("matplotlib").use("Agg")
    figure = result.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
    assert [axis.get_ylabel() for axis in figure.axes] == ["f − lowest f", "gradient norm", "step"]
    lines = figure.axes[0].get_lines()
    assert len(lines) == 1 + result.restarts > 1  # the curve, and a mark a restart


def test_a_tree_prints_its_shapes():
    start = {"X": X0, "b": np.zeros(2)}
    manifold = {"X": stiefel.Stiefel(), "b": stiefel.Euclidean()}
    both = lambda p: (fun(p["X"])[0] + p["b"] @ p["b"], {"X": fun(p["X"])[1], "b": 2 * p["b"]})
    text = repr(minimize(both, start, manifold=manifold))
    assert "'b': array of shape (2,), float64" in text


def test_every_method_has_a_name_in_lower_case():
    assert all(name == name.lower() for name in METHODS)


def test_a_retired_method_warns_and_names_its_successor():
    from stiefel.habits import method_name

    with pytest.warns(DeprecationWarning, match=r"accelerated-lean.*use 'accelerated'"):
        assert method_name("accelerated-lean") == "accelerated"
