"""Whatever is passed to the call: a result that keeps its promises, or an error that teaches."""

import math
import os
import traceback
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stiefel
from stiefel.solvers import METHODS

FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "150")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,  # the soak asks for other inputs
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MISUSE = (TypeError, ValueError, FileNotFoundError)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([0.0, 1e-8, 1.0, -1.0, 1e308, 5e-324, math.inf, -math.inf, math.nan, 2.5]),
    st.sampled_from(["", "auto", "lbfgs", "1e-6", "accelerated", "ß"]),
    st.just([]),
    st.just({}),
    st.just(np.float32(0.5)),
    st.just(np.array([1.0, 2.0])),
    st.just(1j),
)
dtypes = st.sampled_from(["f4", "f8", "c8", "c16", "i8", "?", "O", "U1", "f2"])
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def arrays(draw):
    """Points good and bad: any shape and type, sometimes orthonormal, sometimes not finite."""
    shape, dtype = draw(shapes), draw(dtypes)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if draw(st.booleans()) and len(shape) >= 2 and shape[-2] >= shape[-1] > 0 and 0 not in shape:
        x = stiefel.random_point(*shape, seed=rng)
        return x.astype(dtype) if dtype in ("f4", "f8", "c8", "c16") else x
    x = rng.standard_normal(shape)
    if draw(st.integers(0, 4)) == 0 and x.size:
        x.flat[0] = draw(st.sampled_from([math.nan, math.inf, 0.0]))
    return np.asarray(x, dtype=object).astype(dtype) if dtype == "U1" else x.astype(dtype)


points = st.recursive(
    st.one_of(arrays(), scalars),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        st.tuples(inner),
    ),
    max_leaves=3,
)


def good_point(draw):
    n, k = draw(st.sampled_from([(4, 2), (3, 1), (3, 3), (5, 2)]))
    return stiefel.random_point(n, k, seed=draw(st.integers(0, 9)))


def quadratic(X):
    D = np.arange(1.0, X.shape[-2] + 1)[:, None].astype(X.dtype)
    return float(np.vdot(X, D * X).real), 2 * D * X


@st.composite
def functions(draw):
    """fun(X) -> anything."""
    kind = draw(st.integers(0, 5))
    value, gradient = draw(scalars), draw(st.one_of(scalars, arrays()))
    if kind == 0:
        return lambda X: (value, 0 * X)
    if kind == 1:
        return lambda X: (1.0, gradient)
    if kind == 2:
        return lambda X: (value, gradient, value)
    if kind == 3:
        return lambda X: value
    if kind == 4:
        return value
    return quadratic


def check_misuse(error):
    frame = traceback.extract_tb(error.__traceback__)[-1]
    assert "stiefel" in frame.filename, f"{error!r} was raised in {frame}"
    assert len(str(error)) > 15, repr(error)


def attempt(*arguments, **options):
    """Run; misuse must be named by this library, not stumbled over by Python or NumPy."""
    options = {"maxiter": 5, "maxfun": 200} | options
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = stiefel.minimize(*arguments, **options)
        except MISUSE as error:
            check_misuse(error)
            return None
    assert isinstance(result, stiefel.Result)
    assert result.success is (result.status is stiefel.Status.CONVERGED)
    assert result.feasibility < 1e-4
    if result.success:
        assert math.isfinite(result.fun)
        assert math.isfinite(result.gradient_norm)
    return result


@FUZZ
@given(points)
def test_any_start(x0):
    attempt(lambda X: (1.0, 0 * X) if hasattr(X, "shape") else (1.0, X), x0)


@FUZZ
@given(st.data(), functions())
def test_any_function(data, fun):
    attempt(fun, good_point(data.draw))


@FUZZ
@given(st.data(), st.sampled_from(
    ["jac", "manifold", "method", "options", "hessp", "precond", "rtol", "gtol", "ftol", "maxiter",
     "maxfun", "maxtime", "stop", "fnoise", "callback", "checkpoint_interval", "nonsense"]
), scalars)  # fmt: skip
def test_any_option(data, name, value):
    attempt(quadratic, good_point(data.draw), **{name: value})


@FUZZ
@given(
    st.data(),
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(
        st.sampled_from(["growth", "memory", "initial_step", "restart", "curvature", "rule", "x"]),
        scalars,
        max_size=2,
    ),
)
def test_any_parameter_of_a_method(data, method, options):
    attempt(quadratic, good_point(data.draw), method=method, options=options)


@FUZZ
@given(
    st.sampled_from(sorted(METHODS)),
    st.sampled_from([1e-320, 1e-200, 1e-8, 1.0, 1e8, 1e150, 1e300]),
    st.sampled_from([0.0, 1.0, -1e8, 1e16]),
    st.integers(0, 9),
    st.sampled_from([(4, 2), (3, 1), (3, 3), (1, 1), (2, 2)]),
    st.sampled_from([np.float32, np.float64, np.complex128]),
)
def test_any_scale_shift_shape_and_type(method, scale, shift, seed, shape, dtype):
    if dtype is np.float32 and not 1e-30 < scale < 1e30:
        scale = 1.0
    x0 = stiefel.Stiefel().random(*shape, seed=seed, dtype=dtype)
    fun = lambda X: (scale * quadratic(X)[0] + shift, dtype(scale) * quadratic(X)[1])
    result = attempt(fun, x0, method=method, maxiter=30)
    assert result is not None
    assert result.x.dtype == dtype
    rows = result.history.as_array()
    digits = 1e-5 if dtype is np.float32 else 1e-9
    first = rows["value"][0]
    # Where shift and function cancel, the value keeps the rounding of both.
    rounding = 100 * float(np.finfo(dtype).eps) * (abs(shift) + abs(first - shift))
    assert result.fun <= first or math.isclose(result.fun, first, rel_tol=digits, abs_tol=rounding)


@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_vanishes_exactly_is_convergence(method):
    """Found by fuzzing: a constant function on the complex circle."""
    x0 = stiefel.Stiefel().random(1, 1, seed=0, dtype=np.complex128)
    result = attempt(lambda X: (1e-200, 2e-200 * X), x0, method=method, maxiter=30)
    assert result.gradient_norm < 1e-215


@pytest.mark.parametrize("method", METHODS)
def test_a_step_to_the_opposite_point_is_no_error(method):
    """Found by fuzzing: on the circle a step of the first iteration can lead to −x."""
    for scale in (1e6, 1e8, 1e10):
        x0 = stiefel.Stiefel().random(2, 1, seed=3, dtype=np.float32)
        fun = lambda X: (scale * quadratic(X)[0], np.float32(scale) * quadratic(X)[1])
        assert attempt(fun, x0, method=method, maxiter=30) is not None


@pytest.mark.parametrize("what", ["value", "gradient", "aux", "callback", "precond", "hessp"])
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt, SystemExit])
def test_exceptions_of_the_user_come_through_with_the_best_point(what, error):
    calls = [0]

    def sometimes(*_):
        calls[0] += 1
        if calls[0] == 4:
            raise error("mine")
        return False

    def fun(X):
        if what in ("value", "gradient", "aux"):
            sometimes()
        return quadratic(X)

    options = {"callback": sometimes} if what == "callback" else {}
    if what == "precond":
        options = {"precond": lambda X, G: (sometimes(), G)[1]}
    if what == "hessp":
        D = np.arange(1.0, 7)[:, None]
        options = {"hessp": lambda X, V: (sometimes(), 2 * D * V)[1], "method": "trust-region"}
    with pytest.raises(error, match="mine") as caught:
        stiefel.minimize(fun, stiefel.random_point(6, 2, seed=0), rtol=1e-12, **options)
    partial = caught.value.partial_result
    assert partial.status is stiefel.Status.INTERRUPTED
    assert partial.feasibility <= 10 * np.finfo(float).eps * math.sqrt(2)
