"""Global minima with a proof: rotation synchronisation and the max-cut relaxation."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

import stiefel
from stiefel.applications.certificate import Certificate, smallest_eigenvalue
from stiefel.applications.maxcut import certify as certify_cut
from stiefel.applications.maxcut import cut_value, max_cut
from stiefel.applications.synchronization import alignment, certify, spectral_start, synchronize
from stiefel.objectives import MaxCut, RotationSynchronization

KARATE = 183.645289


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_five_hundred_rotations_are_proved_optimal(noise):
    problem, planted = RotationSynchronization.random_instance(500, noise=noise, rng=0)
    found = synchronize(problem)
    assert found.result.success
    assert found.certificate.smallest_eigenvalue >= -1e-8
    assert found.certificate.proves_optimality()
    assert found.certificate.gap <= 1e-8 * max(found.certificate.value, 1.0)
    # The planted rotations are no better, and the answer is near them.
    assert found.certificate.bound <= problem.value(planted) + 1e-8
    error = np.abs(alignment(found.rotations, planted) - planted).max()
    assert error <= 0.6 * noise + 1e-8
    np.testing.assert_allclose(np.linalg.det(found.rotations), 1.0, atol=1e-12)


def test_random_start_finds_the_same_rotations():
    problem, _ = RotationSynchronization.random_instance(60, edge_probability=0.4, noise=0.2, rng=3)
    first = synchronize(problem)
    random = stiefel.SpecialOrthogonal().random(60, 3, 3, seed=1)
    second = synchronize(problem, start=random)
    assert second.certificate.proves_optimality()
    assert second.certificate.value == pytest.approx(first.certificate.value, rel=1e-12)
    np.testing.assert_allclose(
        alignment(second.rotations, first.rotations), first.rotations, atol=1e-7
    )


def test_spectral_start_is_exact_without_noise():
    problem, planted = RotationSynchronization.random_instance(50, edge_probability=0.5, rng=0)
    start = spectral_start(problem)
    np.testing.assert_allclose(alignment(start, planted), planted, atol=1e-2)


def test_bound_of_any_point_is_a_bound():
    problem, _ = RotationSynchronization.random_instance(20, noise=0.2, rng=1)
    best = synchronize(problem).certificate.value
    rng = np.random.default_rng(0)
    for _ in range(5):
        point = stiefel.SpecialOrthogonal().random(20, 3, 3, seed=rng)
        certificate = certify(problem, point)
        assert certificate.bound <= best + 1e-9
        assert not certificate.proves_optimality()


def test_a_local_minimum_is_not_certified():
    """A ring of exact measurements has a twisted local minimum: one turn along the ring."""
    m = 12
    edges = np.stack([np.arange(m), (np.arange(m) + 1) % m], axis=1)
    problem = RotationSynchronization(edges, np.broadcast_to(np.eye(2), (m, 2, 2)).copy())
    angle = 2 * np.pi * np.arange(m) / m
    twist = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    found = synchronize(problem, start=np.ascontiguousarray(np.moveaxis(twist, 2, 0)))
    assert found.result.success
    assert found.certificate.value > 1.0
    assert not found.certificate.proves_optimality()
    assert found.certificate.bound <= 1e-9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_karate_club(seed):
    cut = max_cut(nx.karate_club_graph(), seed=seed)
    assert cut.value == pytest.approx(KARATE, abs=1e-6)
    assert cut.certificate.gap <= 1e-5
    assert cut.cut_value == 179  # the best that rounding is known to find; the bound allows 183
    assert cut.cut_value <= cut.certificate.bound


def test_rounded_cut_is_the_cut_of_networkx():
    graph = nx.karate_club_graph()
    cut = max_cut(graph)
    side = {node for node, s in zip(graph.nodes, cut.sides, strict=True) if s > 0}
    assert nx.cut_size(graph, side, weight="weight") == pytest.approx(cut.cut_value)


def test_small_graph_against_all_cuts():
    rng = np.random.default_rng(5)
    W = np.triu(rng.random((9, 9)), 1)
    W += W.T
    L = np.diag(W.sum(axis=1)) - W
    best = max(cut_value(L, np.array([1, *s])) for s in itertools.product((-1, 1), repeat=8))
    cut = max_cut(W)
    assert cut.cut_value == pytest.approx(best)
    assert best <= cut.certificate.bound
    assert max_cut(scipy.sparse.csr_array(W)).value == pytest.approx(cut.value, rel=1e-9)


def test_odd_cycle_has_its_known_value():
    cut = max_cut(MaxCut.cycle(7), seed=1)
    assert cut.value == pytest.approx(-MaxCut.cycle(7).minimum, rel=1e-9)
    assert cut.cut_value == 6


def test_bound_holds_far_from_the_optimum():
    L = scipy.sparse.csr_array(MaxCut.cycle(7).L)
    certificate = certify_cut(L, stiefel.random_point(7, 3, 1, seed=0))
    assert certificate.bound >= -MaxCut.cycle(7).minimum
    assert not certificate.proves_optimality()


def test_smallest_eigenvalue_by_lanczos(monkeypatch):
    rng = np.random.default_rng(0)
    A = scipy.sparse.csr_array(np.diag(rng.uniform(0.5, 9.0, 40)) + 0.01 * np.ones((40, 40)))
    dense = smallest_eigenvalue(A)
    assert dense == pytest.approx(np.linalg.eigvalsh(A.toarray())[0])
    monkeypatch.setattr("stiefel.applications.certificate.DENSE_ROWS", 10)
    assert smallest_eigenvalue(A) == pytest.approx(dense, abs=1e-10)


def test_misuse():
    with pytest.raises(ValueError, match="symmetric"):
        max_cut(np.triu(np.ones((3, 3))))
    assert Certificate(2.0, 1.5, -1.0).gap == 0.5
