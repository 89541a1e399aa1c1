"""The Riemannian staircase, and pose graphs from files."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from scipy.spatial.transform import Rotation

import stiefel
from stiefel.applications.g2o import read_g2o
from stiefel.applications.staircase import Relaxation, lower_bound, staircase
from stiefel.applications.synchronization import alignment, inverse_laplacian, synchronize
from stiefel.objectives import RotationSynchronization


def with_outliers(share, m=40, seed=0):
    """Measurements of which a share is random."""
    rng = np.random.default_rng(seed)
    problem, truth = RotationSynchronization.random_instance(m, 3, 0.3, 0.05, rng)
    wrong = rng.random(len(problem.edges)) < share
    R = problem.measurements.copy()
    R[wrong] = Rotation.random(int(wrong.sum()), rng=rng).as_matrix()
    return RotationSynchronization(problem.edges, R), truth


def test_few_errors_are_certified_at_the_lowest_rank():
    problem, truth = with_outliers(0.0)
    found = staircase(problem)
    assert found.tight
    assert [floor.rank for floor in found.floors] == [3]
    assert found.relative_gap < 1e-4
    assert np.linalg.norm(alignment(found.rotations, truth) - truth) / np.sqrt(len(truth)) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_outliers_need_a_higher_rank_and_the_bound_is_sharper(seed):
    problem, _ = with_outliers(0.6, seed=seed)
    found, plain = staircase(problem), synchronize(problem)
    assert found.tight
    assert found.certificate.bound >= plain.certificate.bound
    assert found.certificate.value <= plain.certificate.value * (1 + 1e-9)
    ranks = [floor.rank for floor in found.floors]
    assert ranks == list(range(3, 3 + len(ranks)))
    assert len(ranks) > 1
    assert plain.certificate.gap > 5 * found.certificate.gap  # what the climb is for
    values = [floor.value for floor in found.floors]
    assert all(b <= a + 1e-9 * abs(a) for a, b in pairwise(values))


def test_bound_holds_for_any_rotations():
    problem, _ = with_outliers(0.5, m=15)
    relaxation, best = Relaxation(problem), staircase(problem).certificate.value
    for seed in range(5):
        X = stiefel.Stiefel().random(15, 5, 3, seed=seed)
        least = scipy.linalg.eigvalsh(relaxation.slack(X).toarray())[0]
        assert lower_bound(relaxation, X, least) <= best


def test_relaxation_of_rank_d_is_the_problem_itself():
    problem, truth = with_outliers(0.2)
    relaxation = Relaxation(problem)
    value, gradient = relaxation(truth.swapaxes(1, 2))
    expected, G = problem.value_and_gradient(truth)
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(gradient, G.swapaxes(1, 2), atol=1e-10)


def test_the_rank_must_hold_the_rotations():
    with pytest.raises(ValueError, match="max_rank"):
        staircase(with_outliers(0.0)[0], max_rank=2)


def ring(m=300):
    """A long way round: L has eigenvalues of 4e-4 beside 4."""
    rng = np.random.default_rng(1)
    Q = Rotation.random(m, rng=rng)
    edges = np.stack([np.arange(m), (np.arange(m) + 1) % m], axis=1)
    noise = Rotation.from_rotvec(0.05 * rng.standard_normal((m, 3)))
    ratios = (noise * Q[edges[:, 0]] * Q[edges[:, 1]].inv()).as_matrix()
    return RotationSynchronization(edges, ratios)


def test_long_ways_take_few_evaluations():
    """Without the inverse of L 1,230 and 984."""
    found, stairs = synchronize(ring()), staircase(ring())
    assert found.certificate.proves_optimality(1e-8)
    assert stairs.tight
    assert found.result.nfev <= 30  # 85 with a hundred times the shift, 39 with a hundredth
    assert stairs.floors[0].evaluations <= 30
    plain = synchronize(ring(60), precond=False)
    assert plain.certificate.value == pytest.approx(synchronize(ring(60)).certificate.value)
    assert plain.result.nfev > 50


def test_dense_graphs_are_not_factorised():
    """500 rotations with 13,085 measurements take 0.24 s without, and 0.64 s with it."""
    problem, _ = RotationSynchronization.random_instance(100, noise=0.1, rng=0)
    assert len(problem.edges) > 5 * problem.m
    assert inverse_laplacian(problem, None) is None
    assert inverse_laplacian(problem, True) is not None
    assert inverse_laplacian(ring(60), None) is not None
    assert inverse_laplacian(ring(60), False) is None


def pose_file(path, poses, edges, kind):
    lines = ["# a comment", "VERTEX_SE2 0 0 0 0"]
    for i, j in edges:
        if kind == "EDGE_SE2":
            angle = poses[j] - poses[i]
            lines.append(f"{kind} {10 * i} {10 * j} 1 2 {angle} 1 0 0 1 0 4")
        else:
            x, y, z, w = (poses[i].inv() * poses[j]).as_quat()
            information = "1 0 0 0 0 0 1 0 0 0 0 1 0 0 0 6 0 0 6 0 6"
            lines.append(f"{kind} {10 * i} {10 * j} 1 2 3 {x} {y} {z} {w} {information}")
    path.write_text("\n".join(lines))
    return path


EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


def test_a_file_in_the_plane(tmp_path):
    angles = np.array([0.0, 0.4, -1.0, 2.0])
    graph = read_g2o(pose_file(tmp_path / "a.g2o", angles, EDGES, "EDGE_SE2"))
    np.testing.assert_array_equal(graph.names, [0, 10, 20, 30])
    np.testing.assert_array_equal(graph.problem.weights, 4.0)
    found = synchronize(graph.problem)
    assert found.certificate.value < 1e-15
    relative = found.rotations[0] @ found.rotations[1].T  # R_0ᵀR_1
    assert np.arctan2(relative[1, 0], relative[0, 0]) == pytest.approx(0.4)


def test_a_file_in_space(tmp_path):
    poses = Rotation.random(4, rng=np.random.default_rng(0))
    graph = read_g2o(pose_file(tmp_path / "a.g2o", poses, EDGES, "EDGE_SE3:QUAT"))
    assert graph.translations.shape == (5, 3)
    np.testing.assert_allclose(graph.problem.weights, 1.5 / (3 / 6))
    Q = synchronize(graph.problem).rotations
    relative = (poses[0].inv() * poses[3]).as_matrix()
    np.testing.assert_allclose(Q[0] @ Q[3].T, relative, atol=1e-7)


UNIT = "1 0 0 0 0 0 1 0 0 0 0 1 0 0 0 1 0 0 1 0 1"


def test_singular_information_weighs_nothing_and_a_mark_at_the_beginning_hides_no_edge(tmp_path):
    text = (
        "\ufeffEDGE_SE3:QUAT 0 1 0 0 0 0 0 0 1e-200 " + UNIT + "\n"
        "EDGE_SE3:QUAT 1 2 0 0 0 0 0 0 1e200 " + UNIT[:-1] + "0\n"
    )
    (tmp_path / "a.g2o").write_text(text, encoding="utf-8")
    problem = read_g2o(tmp_path / "a.g2o").problem
    np.testing.assert_allclose(problem.weights, [0.5, 0.0])
    np.testing.assert_allclose(problem.measurements, [np.eye(3)] * 2)


def test_exact_measurements_have_no_gap(tmp_path):
    angles = np.array([0.0, 0.4, -1.0, 2.0])
    graph = read_g2o(pose_file(tmp_path / "a.g2o", angles, EDGES, "EDGE_SE2"))
    assert staircase(graph.problem).relative_gap < 1e-6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "VERTEX_SE2 0 0 0 0",
        "EDGE_SE2 0 1 1 1",
        "EDGE_SE2 0 x 1 2 3 1 0 0 1 0 1",
        "EDGE_SE2 0 1 nan 2 3 1 0 0 1 0 1",
        "EDGE_SE2 0 0 1 2 3 1 0 0 1 0 1",
        "EDGE_SE2 0 99999999999999999999 1 2 3 1 0 0 1 0 1",
        "EDGE_SE2 0 1 1 2 3 1 0 0 1 0 -1",
        "EDGE_SE3:QUAT 0 1 0 0 0 0 0 0 0 " + UNIT,
        "EDGE_SE3:QUAT 0 1 0 0 0 0 0 0 1 " + UNIT[:-1] + "-5",
    ],
)
def test_what_is_no_pose_graph_is_refused(text, tmp_path):
    (tmp_path / "a.g2o").write_text(text)
    with pytest.raises(ValueError, match=r"a\.g2o"):
        read_g2o(tmp_path / "a.g2o")
