"""The compiled kernels of the row model beside the text: `solvers.row_memory`, `row_model`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.metric import CANONICAL
from stiefel.objectives import Brockett
from stiefel.solvers import METHODS, memory, row_compiled, row_memory, row_model, row_ritz
from stiefel.solvers.problem import Problem
from stiefel.solvers.row_inverse import NOTHING_SEEN, Columns, Known, inverse_of_rows
from stiefel.solvers.row_model import RowModel
from stiefel.solvers.row_recognition import (
    HOPELESS,
    ROUNDS,
    WEIGHTS,
    Recognised,
    SecantBlocks,
    StepEnds,
    look,
    symmetrising,
)
from stiefel.types import Gradient

KERNELS = kernels_for(np.zeros(1)).compiled
if KERNELS is None:
    pytest.skip("the compiled kernels were not built", allow_module_level=True)


class Drawn:
    """A memory of an operator with errors, its point, and the next one."""

    def __init__(self, seed, n, k, used, is_complex, errors):
        self.rng, self.n, self.k, self.is_complex = np.random.default_rng(seed), n, k, is_complex
        A = self.normal(n, n)
        self.A = A @ A.conj().T / n
        self.X = stiefel.nearest(self.normal(n, k))
        self.next = stiefel.nearest(self.X + 0.1 * self.normal(n, k))
        self.G, self.E = self.normal(n, k), self.normal(n, k)
        self.kernels, self.blocks = kernels_for(self.X), used + 1
        self.W = np.zeros((self.blocks, 2 * k, n), self.X.dtype)
        rows = self.W[:used].reshape(-1, 2, n)
        U = self.normal(n, used * k)
        Z = self.A @ U + errors * self.normal(n, used * k)
        rows[:, 0], rows[:, 1] = U.conj().T, Z.conj().T
        self.XA = np.concatenate((self.X, self.A @ self.X), axis=1)
        D = self.normal(k, k)
        self.D = D @ D.conj().T + np.eye(k)
        level = 0.3 * self.normal(k, k)
        self.level, self.used = level + level.conj().T, used

    def normal(self, *shape):
        real = self.rng.standard_normal(shape)
        return real + 1j * self.rng.standard_normal(shape) if self.is_complex else real

    def memory(self):
        return row_memory.with_grams(self.kernels, self.W.copy(), self.used, self.XA, self.G)

    def at(self):
        rotation = self.X.conj().T @ self.G
        rotation = 0.5 * (rotation - rotation.conj().T)
        return Gradient(0.0, self.G, 1.0, None, rotation, True, self.level)

    def known(self, offset):
        offset = self.E if offset else None
        columns = Columns.of(self.D)
        known = Known(self.memory(), columns, offset, *NOTHING_SEEN, True)
        return row_model.with_ritz(self.kernels, known, self.level)


def both(compute):
    """By the kernels, and by the text."""
    found = compute()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_compiled, "row_kernels", lambda k, X: None)
        return found, compute()


def assert_near(found, expected, digits=1e-9):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=digits * np.abs(expected).max(initial=1.0))


sizes = st.tuples(
    st.integers(0, 10**6), st.integers(0, 30), st.integers(1, 5), st.integers(1, 4), st.booleans()
)


def drawn(size, errors=0.0):
    seed, extra, k, used, is_complex = size
    return Drawn(seed, (used + 2) * k + extra, k, used, is_complex, errors)


def assert_same_memory(found, expected):
    assert found.used == expected.used
    W = slice(0, found.used)
    for f, e in zip(
        (found.W[W], found.XA, *found.grams, found.seen),
        (expected.W[W], expected.XA, *expected.grams, expected.seen),
        strict=True,
    ):
        assert_near(f, e)


@settings(max_examples=30, deadline=None)
@given(sizes)
def test_gram_matrices(size):
    assert_same_memory(*both(drawn(size).memory))


@settings(max_examples=30, deadline=None)
@given(sizes, st.booleans())
def test_a_new_block(size, offset):
    s = drawn(size)

    def grown():
        return row_memory.grown(s.kernels, s.memory(), s.next, s.at(), s.D, s.E if offset else None)

    (found, *asymmetries), (expected, *others) = both(grown)
    assert found.used == s.used + 1
    assert_same_memory(found, expected)
    assert_near(asymmetries, others)


def test_a_new_block_of_more_rows_than_are_read_at_once():
    rng, n, k = np.random.default_rng(0), 15_000, 2
    X, X1 = (stiefel.nearest(rng.standard_normal((n, k))) for _ in range(2))
    a, kernels = np.linspace(1.0, 2.0, n)[:, None], kernels_for(X)
    W = np.zeros((3, 2 * k, n))
    W[:2] = rng.standard_normal((2, 2 * k, n))
    XA, G = np.concatenate((X, a * X), axis=1), rng.standard_normal((n, k))
    at = Gradient(0.0, G, 1.0, None, np.zeros((k, k)), True, np.eye(k))

    def grown():
        memory = row_memory.with_grams(kernels, W.copy(), 2, XA, G)
        return row_memory.grown(kernels, memory, X1, at, np.eye(k), None)[0]

    assert_same_memory(*both(grown))


def test_a_step_that_only_rotates_adds_no_block():
    s = Drawn(0, 20, 3, 2, False, 0.0)
    turn = stiefel.nearest(np.eye(3) + 0.1 * s.normal(3, 3))
    s.next = s.X @ turn
    found, expected = both(
        lambda: row_memory.grown(s.kernels, s.memory(), s.next, s.at(), s.D, None)
    )
    assert found[0].used == s.used and found[1:] == expected[1:] == (0.0, 0.0)
    assert_same_memory(found[0], expected[0])


@settings(max_examples=30, deadline=None)
@given(sizes, st.integers(1, 20))
def test_combinations(size, columns):
    s = drawn(size)
    C = s.normal(s.used * s.k, min(columns, s.used * s.k))
    assert_same_memory(*both(lambda: row_memory.compressed(s.kernels, s.memory(), C, s.G)))


@settings(max_examples=60, deadline=None)
@given(sizes, st.sampled_from([0.0, 1e-3]))
def test_columns_and_ritz_pairs(size, errors):
    s = drawn(size, errors)
    found, expected = both(lambda: s.known(False))
    assert_near(found.columns.c, expected.columns.c)
    for name in ("W", "F"):  # columns are known up to a phase
        f, e = getattr(found.columns, name), getattr(expected.columns, name)
        assert_near((f * found.columns.c) @ f.conj().T, (e * expected.columns.c) @ e.conj().T)
    assert_near(found.normal.WW, expected.normal.WW)
    assert_near(found.ritz.theta, expected.ritz.theta, 1e-8)
    f, e = (known.normal.UU @ known.ritz.T for known in (found, expected))
    assert_near(f @ f.conj().T, e @ e.conj().T, 1e-7)


@settings(max_examples=30, deadline=None)
@given(sizes)
def test_ritz_pairs_of_images_with_large_errors(size):
    """As many are dropped; which one of the last two goes is a tie."""
    s = drawn(size, 0.3)
    found, expected = both(lambda: s.known(False).ritz.theta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ritz, "UNRELIABLE", 1e9)
        everything = s.known(False).ritz.theta
    assert len(found) == len(expected) <= len(everything)
    distances = np.abs(found[:, None] - everything).min(axis=1, initial=np.inf)
    np.testing.assert_allclose(distances, 0.0, atol=1e-9)


@pytest.mark.parametrize("is_complex", [False, True])
def test_dependent_vectors_are_dropped(is_complex):
    """More vectors than X⊥ has dimensions; which of them stay is a matter of rounding."""
    found, expected = both(lambda: Drawn(1, 9, 3, 4, is_complex, 0.0).known(False))
    assert found.ritz.T.shape == expected.ritz.T.shape
    assert found.ritz.T.shape[1] <= 6 < len(found.ritz.T)
    f, e = (known.normal.UU @ known.ritz.T for known in (found, expected))
    assert_near(f @ f.conj().T, e @ e.conj().T, 1e-7)


@settings(max_examples=60, deadline=None)
@given(sizes, st.booleans(), st.booleans(), st.sampled_from([1.0, -1.0]))
def test_the_inverse(size, offset, turns, sign):
    s = drawn(size)
    at = s.at()

    def applied():
        known: Known = s.known(offset)
        seen = known.memory.seen
        return inverse_of_rows(s.kernels, known, s.G, seen, at.rotation, sign, turns)

    found, expected = both(applied)
    assert_near(found / np.abs(expected).max(), expected / np.abs(expected).max(), 1e-6)


@settings(max_examples=30, deadline=None)
@given(sizes)
def test_the_inverse_of_any_cotangent(size):
    """Of an inexact model: the kernel finds the products of G by itself."""
    s = drawn(size)
    geometry = Stiefel().bind(s.X)

    def raised():
        known = s.known(False)
        return RowModel().raised(geometry, known, s.X, s.G)

    found, expected = both(raised)
    assert_near(found / np.abs(expected).max(), expected / np.abs(expected).max(), 1e-6)


def test_products_and_rotation_are_known_together():
    s = Drawn(0, 20, 3, 2, False, 0.0)
    known, given = s.known(False), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_compiled, "applied_inverse", lambda *them: given.extend(them))
        RowModel().raised(Stiefel().bind(s.X), known, s.X, s.G)
    fast, kept, G, seen, *others = given
    assert seen == (None, None)
    with pytest.raises(ValueError, match="known together"):
        row_compiled.applied_inverse(fast, kept, G, (None, np.eye(3)), *others)


# -- a step in one call ----------------------------------------------------------------------------


def a_step(size, offset, full=False, errors=0.0):
    """A model of f = ½ tr(XᴴAXM) + Re tr(CᴴX), and a step from X to the next point."""
    seed, extra, k, used, is_complex = size
    s = drawn((seed, extra, max(k, 2), max(used, 3) if full else used, is_complex), errors)
    C, M = (0.3 * s.normal(s.n, s.k) - s.X if offset else None), np.linalg.inv(s.D)
    geometry = Stiefel().bind(s.X)

    def at(X):
        return Problem.known(0.0, geometry.gradient(X, s.A @ X @ M + (C if offset else 0.0)))

    ends = StepEnds(s.X, at(s.X), s.next, at(s.next))
    s.G, s.level = ends.at0.G, ends.at0.level
    known = s.known(False)._replace(offset=C)
    if full:
        known = known._replace(memory=known.memory._replace(W=s.W[: s.used].copy()))
    return s, geometry, known, ends


@settings(max_examples=60, deadline=None)
@given(sizes, st.booleans(), st.booleans(), st.booleans())
def test_a_step_in_one_call(size, offset, full, horizontal):
    s, geometry, known, ends = a_step(size, offset, full)
    model, metric = RowModel(ritz=1), CANONICAL._replace(horizontal=horizontal)
    found = model.advanced(geometry, known, ends, metric)
    if full and not len(known.ritz.theta):
        assert found is None
        return
    new, (T, slope, ray) = found
    X, at = ends.X, ends.at

    def by_the_text():
        expected = model._grown(s.kernels, known, ends)
        pairs = memory.NOTHING
        return expected, model.direction(geometry, expected, pairs, X, at, horizontal)

    _, (expected, direction) = both(by_the_text)
    assert new.memory.used == expected.memory.used and new.exact and new.resets == known.resets
    assert new.memory.W is not known.memory.W if full else new.memory.W is known.memory.W
    if not full:  # combinations are known up to rotations
        assert_same_memory(new.memory, expected.memory)
    assert_near(new.ritz.theta, expected.ritz.theta, 1e-7)
    scale = np.abs(direction).max()
    assert_near(T / scale, direction / scale, 1e-6)
    np.testing.assert_allclose(slope, geometry.dot(at.G, T))
    along = geometry.ray_along(X, T, metric)
    assert ray.length == along.length and ray.defect == along.defect
    np.testing.assert_array_equal(ray(0.3), along(0.3))


@settings(max_examples=30, deadline=None)
@given(sizes, st.booleans())
def test_a_step_of_an_inexact_model_in_one_call(size, full):
    """The same memory and Ritz pairs, without a direction: pairs of L-BFGS come before that."""
    s, geometry, known, ends = a_step(size, False, full)
    model, known = RowModel(ritz=1), known._replace(exact=False)
    found = model.advanced(geometry, known, ends, CANONICAL._replace(horizontal=True))
    if full and not len(known.ritz.theta):
        assert found is None
        return
    (new, aimed), (_, expected) = found, both(lambda: model._grown(s.kernels, known, ends))
    assert aimed is None and new.memory.seen is None and not new.exact
    assert_near(new.ritz.theta, expected.ritz.theta, 1e-7)
    if not full:
        assert_same_memory(
            new.memory._replace(seen=np.zeros(0)), expected.memory._replace(seen=np.zeros(0))
        )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 7, 8, 10])
def test_a_step_of_more_rows_than_are_read_at_once(k, exact):
    """Products are made block by block, also those of a memory that is made smaller."""
    s, geometry, known, ends = a_step((0, 1100, k, 3, False), False, full=True)
    model, metric, known = (
        RowModel(ritz=1),
        CANONICAL._replace(horizontal=True),
        known._replace(exact=exact),
    )
    new, aimed = model.advanced(geometry, known, ends, metric)
    _, expected = both(lambda: model._grown(s.kernels, known, ends))
    assert_near(new.ritz.theta, expected.ritz.theta, 1e-7)
    if exact:
        X, at = ends.X, ends.at
        _, T = both(lambda: model.direction(geometry, expected, memory.NOTHING, X, at, True))
        assert_near(aimed[0] / np.abs(T).max(), T / np.abs(T).max(), 1e-6)


@pytest.mark.parametrize("agreed", [0.03, 1e-12])
def test_older_blocks_of_an_inexact_model_agree_more_closely(agreed):
    s, geometry, known, ends = a_step((0, 10, 3, 3, False), False, errors=1e-6)
    model = RowModel(nearly=agreed)
    found = model.advanced(geometry, known._replace(exact=False), ends, CANONICAL)
    assert (found is None) == (agreed < 1e-6)
    assert model._grown(s.kernels, known._replace(exact=False), ends).resets == (agreed < 1e-6)


@pytest.mark.parametrize("case", ["only rotates", "contradicts", "older blocks contradict"])
def test_unusual_steps_are_left_to_the_text(case):
    s, geometry, known, ends = a_step((0, 10, 3, 3, False), True)
    if case == "only rotates":
        turn = stiefel.nearest(np.eye(3) + 0.1 * s.normal(3, 3))
        ends = ends._replace(X=s.X @ turn)
    elif case == "contradicts":
        ends = ends._replace(at=ends.at._replace(G=s.normal(s.n, s.k)))
    else:
        W = known.memory.W.copy()
        W[: s.used] = s.normal(s.used, 2 * s.k, s.n)
        again = row_memory.with_grams(s.kernels, W, s.used, known.memory.XA, ends.at0.G)
        known = known._replace(memory=again)
        assert RowModel()._grown(s.kernels, known, ends).resets == 1
    assert RowModel().advanced(geometry, known, ends, CANONICAL) is None


def test_one_call_takes_the_way_of_the_text():
    x0 = stiefel.random_point(60, 3, seed=1)
    A, B = np.random.default_rng(0).standard_normal((2, 60, 60))

    def f(X):
        E = A @ X - B[:, :3]
        return 0.5 * np.vdot(E, E), A.T @ E

    found = stiefel.minimize(f, x0, rtol=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowModel, "advanced", lambda *known: None)
        expected = stiefel.minimize(f, x0, rtol=1e-6)
    assert found.nfev == expected.nfev
    assert_near(found.x, expected.x, 1e-5)


def test_wrong_arrays_of_a_step_are_refused():
    _, geometry, known, ends = a_step((3, 10, 2, 3, False), True, full=True)
    given = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_compiled, "advanced", lambda *known: given.append(known))
        RowModel(ritz=1).advanced(geometry, known, ends, CANONICAL)
    (given,) = given
    taken = []

    class Listener:
        def rows_step(self, *arguments):
            taken.extend(arguments)

    row_compiled.advanced(Listener(), *given[1:])
    assert KERNELS.rows_step(*taken) is not None
    for i, argument in enumerate(taken):
        if isinstance(argument, np.ndarray) and i not in (9, 10):
            with pytest.raises(ValueError, match=r"array|memory|axes"):
                KERNELS.rows_step(*taken[:i], argument.reshape(-1)[:-1], *taken[i + 1 :])
    for vectors, lowest in ((0, 2), (3, 2), (6, 2), (2, 2), (4, -1), (10**9, 2)):
        with pytest.raises(ValueError, match="room"):
            KERNELS.rows_step(*taken[:3], vectors, lowest, *taken[5:])
    with pytest.raises(TypeError, match="expected"):
        KERNELS.rows_step(*taken[:-1])


# -- recognition -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(0, 3))
def test_a_look_at_a_step(size, older):
    s, geometry, _, ends = a_step(size, True)
    before = None
    if older:
        S, Y = s.normal(older, s.n, s.k), s.normal(older, s.n, s.k)
        before = SecantBlocks(S, Y, s.normal(older * s.k, older * s.k))
    found, expected = both(lambda: look(s.kernels, before, ends, geometry.eps(s.X)))
    for f, e in zip(found, expected, strict=True):
        assert_near(f, e)


def test_no_step_is_seen_as_none():
    s, _, _, ends = a_step((0, 10, 3, 3, False), True)
    still = ends._replace(X=ends.X0, at=ends.at0)
    far = ends._replace(at=ends.at._replace(G=np.full_like(s.G, 1e200)))
    for wrong in (still, far):
        assert both(lambda ends=wrong: look(s.kernels, None, ends, 2e-16)) == (None, None)


@settings(max_examples=80, deadline=None)
@given(sizes, st.integers(2, 3), st.sampled_from([0.0, 1e-12, 1e-5, 0.1]))
def test_columns_that_make_pairs_symmetric(size, count, errors):
    s = drawn(size)
    M, k = np.linalg.inv(s.D), s.k
    S = s.normal(s.n, count * k)
    K = S.conj().T @ np.hstack([s.A @ block @ M for block in np.split(S, count, axis=1)])
    K = K + errors * np.abs(K).max() * s.normal(*K.shape)
    expected = symmetrising(K, k)
    found = row_compiled.symmetrising_in_one_call(KERNELS, K, k, WEIGHTS, ROUNDS, HOPELESS)
    if errors != 1e-5:  # near the threshold either may be the one that finds none
        assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert_near(found, expected, 1e-8 if errors < 1e-8 else 1.0)


def test_products_without_columns():
    for K in (np.zeros((4, 4)), np.full((4, 4), np.nan), np.full((4, 4), np.inf)):
        for kind in (float, complex):
            K = K.astype(kind)
            assert (
                row_compiled.symmetrising_in_one_call(KERNELS, K, 2, WEIGHTS, ROUNDS, HOPELESS)
                is None
            )
    K, D = np.eye(4), np.eye(2)
    for wrong in (K[:3].copy(), np.eye(8), np.eye(5), K.astype(complex)):
        with pytest.raises(ValueError, match=r"blocks|array"):
            KERNELS.rows_symmetrising(wrong, WEIGHTS, ROUNDS, HOPELESS, D)
    with pytest.raises(ValueError, match="array"):
        KERNELS.rows_symmetrising(K, WEIGHTS[:2].copy(), ROUNDS, HOPELESS, D)
    with pytest.raises(TypeError, match="expected"):
        KERNELS.rows_symmetrising(K, WEIGHTS, ROUNDS, HOPELESS)


def test_wrong_arrays_of_a_look_are_refused():
    s, _, _, ends = a_step((0, 10, 3, 3, True), True)
    taken, blocks = [], np.zeros((2, s.n, s.k), complex)

    class Listener:
        def rows_look(self, *arguments):
            taken.extend(arguments)
            return KERNELS.rows_look(*arguments)

    known = ends.X0, ends.at0.G, ends.at0.level, ends.X, ends.at.G, ends.at.level, ends.at.rotation
    assert row_compiled.look_in_one_call(Listener(), (blocks, blocks), known, 2e-16) is not None
    for i, argument in enumerate(taken):
        if isinstance(argument, np.ndarray):
            with pytest.raises(ValueError, match=r"array|axes|older"):
                KERNELS.rows_look(*taken[:i], argument.reshape(-1)[:-1], *taken[i + 1 :])
    with pytest.raises(TypeError, match="expected"):
        KERNELS.rows_look(*taken[:-1])


@settings(max_examples=30, deadline=None)
@given(sizes, st.booleans())
def test_the_first_block_in_one_call(size, offset):
    """A model begins with the step that recognised it, as `_begun` begins it."""
    s, geometry, known, ends = a_step(size, offset)

    def recognised():  # `_begun` writes over what was seen
        return Recognised(look(s.kernels, None, ends, 2e-16), s.D, known.offset, True)

    empty = row_model._before_the_first(3, s.kernels, recognised(), ends)
    new, (T, *_) = RowModel(blocks=3, ritz=1).advanced(geometry, empty, ends, CANONICAL)

    def by_the_text():
        begun = RowModel(blocks=3, ritz=1)._begun(s.kernels, recognised(), ends).known
        return begun, RowModel().direction(geometry, begun, memory.NOTHING, ends.X, ends.at, False)

    _, (expected, direction) = both(by_the_text)
    assert new.memory.used == expected.memory.used == 1
    assert_near(new.memory.XA, expected.memory.XA)
    assert_near(new.ritz.theta, expected.ritz.theta, 1e-7)
    assert_near(T / np.abs(T).max(), direction / np.abs(T).max(), 1e-6)


# -- runs, and wrong arguments --------------------------------------------------------------------


def test_one_run_takes_the_same_way():
    """Two ways of rounding: every count agrees until rounding is all that is left."""
    x0, method = stiefel.random_point(120, 4, seed=3), METHODS["auto"]

    def run():
        return stiefel.minimize(Brockett.table(120, 4), x0, method=method, rtol=1e-6)

    found, expected = both(run)
    assert found.nfev == expected.nfev
    assert_near(found.x, expected.x, 1e-5)


@pytest.mark.parametrize("name", ["rows_grown", "rows_grams", "rows_combined", "rows_inverse"])
def test_wrong_memories_are_refused(name):
    kernel, wanted = getattr(KERNELS, name), {"rows_grown": 16, "rows_grams": 8}
    count = wanted.get(name, 6 if name == "rows_combined" else 20)
    rest = [np.zeros(1)] * (count - 2)
    for W, used in ((np.zeros((2, 4, 5)), 3), (np.zeros((2, 3, 5)), 1), (np.zeros((2, 4)), 1)):
        with pytest.raises(ValueError, match=r"memory|axes"):
            kernel(W, used, *rest)
    with pytest.raises(ValueError, match=r"array|combinations"):
        kernel(np.zeros((2, 4, 5)), 1, *rest)
    with pytest.raises(TypeError, match="expected"):
        kernel(np.zeros((2, 4, 5)))


def test_points_with_a_constraint_matrix_go_by_the_text():
    X = stiefel.random_point(9, 2, seed=0)
    assert row_compiled.row_kernels(kernels_for(X), X) is KERNELS
    geometry = Stiefel(B=np.diag(np.arange(1.0, 10.0))).bind(X)
    assert row_compiled.row_kernels(geometry.kernels, X) is None
    assert row_compiled.row_kernels(kernels_for(X), X.astype(np.float32)) is None
