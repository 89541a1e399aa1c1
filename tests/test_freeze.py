"""A state that was frozen and thawed takes the same next step, bit for bit."""

import json
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest

import cases
from runs import problem_of
from stiefel.runs.archive import ArchiveError
from stiefel.runs.checkpoint import _with_rays, state_type
from stiefel.runs.saved_types import freeze, thaw
from stiefel.solvers import METHODS


def quadratic(X):
    """Σ w|X|², and its gradient: a function of spans, on every case."""
    parts = X if isinstance(X, tuple) else (X,)
    weights = [_weights(part) for part in parts]
    f = sum(float(np.sum(w * np.abs(x) ** 2)) for w, x in zip(weights, parts))
    G = tuple(2 * w * x for w, x in zip(weights, parts))
    return f, G if isinstance(X, tuple) else G[0]


def _weights(X):
    """Of the rows of matrices, or of the entries of vectors."""
    if X.ndim == 1 or X.shape == (4, 6):  # the stack of unit vectors
        return np.geomspace(1.0, 30.0, X.shape[-1])
    return np.geomspace(1.0, 30.0, X.shape[-2])[:, None]


def bits(flat):
    return {k: v.tobytes() if hasattr(v, "tobytes") else v for k, v in flat.items()}


def through_a_file(flat):
    """New objects for everything, as after reading a file."""
    plain = {k: v for k, v in flat.items() if not hasattr(v, "tobytes")}
    return json.loads(json.dumps(plain)) | {
        k: _copied(v) for k, v in flat.items() if k not in plain
    }


def _copied(v):
    """In its own memory order, which a file keeps too."""
    return v.copy(order="K") if isinstance(v, np.ndarray) else v.copy()


@pytest.mark.filterwarnings("ignore:X0 is square")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", cases.GEOMETRIES, ids=str)
def test_the_next_step_is_the_same(case, method):
    solver = METHODS[method]
    problem, X = problem_of(quadratic, case.point(np.random.default_rng(3)), manifold_of(case))
    state = solver.init(problem, X)
    for _ in range(7):
        flat = freeze(state, "state")
        again = thaw(state_type(solver), through_a_file(flat), "state")
        assert bits(freeze(again, "state")) == bits(flat)
        again = _with_rays(again, problem.geometry)
        here, there = solver.step(problem, state), solver.step(problem, again)
        assert bits(freeze(there, "state")) == bits(freeze(here, "state"))
        state = here


def manifold_of(case):
    parts = getattr(case, "parts", None)
    return case.build() if parts is None else tuple(part.build() for part in parts)


class Colour(Enum):
    RED = 1


class Inner(NamedTuple):
    size: float
    D: Any = None


class Outer(NamedTuple):
    x: Any
    inner: Inner
    colour: Colour | None
    many: tuple[Inner, ...]
    two: tuple[float, float]
    one_of: Inner | tuple[Inner, ...] | None
    rows: tuple[int, ...] = ()
    flag: bool = False


OUTER = Outer(
    (np.ones(2), np.zeros((2, 2))),
    Inner(np.inf),
    Colour.RED,
    (Inner(1.0), Inner(2.0, np.eye(2))),
    (0.5, 0.25),
    (Inner(3.0),),
    (4, 5),
    True,
)


@pytest.mark.parametrize("one_of", [OUTER.one_of, Inner(7.0), None, ()])
@pytest.mark.parametrize("colour", [Colour.RED, None])
def test_records_come_back(one_of, colour):
    record = OUTER._replace(one_of=one_of, colour=colour)
    flat = freeze(record, "r")
    assert all(type(name) is str and not isinstance(v, (tuple, dict)) for name, v in flat.items())
    again = thaw(Outer, through_a_file(flat), "r")
    assert str(again) == str(record)


@pytest.mark.parametrize("change", [
    {"r.inner.size": "1"}, {"r.inner.size": True}, {"r.flag": 1}, {"r.rows.0": 1.5},
    {"r.colour": "BLUE"}, {"r.two": 3}, {"r.many": -1}, {"r.x": 0.5}, {"r.many": 10**9},
    {"r.one_of": "x"}, {"r.x.0": "x"},
])  # fmt: skip
def test_other_types_are_refused(change):
    with pytest.raises(ArchiveError):
        thaw(Outer, freeze(OUTER, "r") | change, "r")


@pytest.mark.parametrize("name", sorted(freeze(OUTER, "r")))
def test_missing_values_are_refused(name):
    flat = freeze(OUTER, "r")
    del flat[name]
    with pytest.raises(ArchiveError):
        thaw(Outer, flat, "r")


def test_what_is_no_number_or_array_is_not_frozen():
    with pytest.raises(TypeError, match=r"r\.x, a function"):
        freeze(OUTER._replace(x=lambda: None), "r")
