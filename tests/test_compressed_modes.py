"""Compressed modes against their closed form, and against the eigenfunctions they approach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg

from stiefel.applications.compressed_modes import (
    STAGES,
    closed_form,
    compressed_modes,
    hamiltonian,
    inverse_hessian,
    laplacian_symbol,
    largest_angle,
    plot,
    refined,
    scdm_start,
    wells,
)
from stiefel.objectives import CompressedModes


def one_dimension(seed):
    return compressed_modes((1000,), (100.0,), 10, 5.0, seed=seed)


def two_dimensions(seed):
    coarse = compressed_modes((48, 48), (16.0, 16.0), 4, 5.0, seed=seed)
    fine = compressed_modes(
        (96, 96), (16.0, 16.0), 4, 5.0, start=refined(coarse), stages=(1e-3, 3e-4)
    )
    return coarse, fine


def relative_error(modes):
    number, dimension = modes.X.shape[1], len(modes.objective.shape)
    return modes.energy / (number * closed_form(modes.objective.mu, dimension).energy) - 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_closed_form_in_one_dimension(seed):
    modes = one_dimension(seed)
    assert abs(relative_error(modes)) <= 2e-4
    np.testing.assert_allclose(modes.X.T @ modes.X, np.eye(10), atol=1e-12)
    # Every mode is the closed form somewhere: 1 + cos κx falls to 1 % of its maximum near the edge.
    inside = 2 / closed_form(5.0, 1).kappa * np.arccos(2 * 0.01 - 1)
    np.testing.assert_allclose(modes.extents(0.01), inside, rtol=0.05)


def test_closed_form_in_two_dimensions_with_the_order_of_the_stencil():
    coarse, fine = two_dimensions(0)
    ratio = relative_error(coarse) / relative_error(fine)
    assert 3.5 <= ratio <= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_the_stencil_for_other_starts(seed):
    coarse, fine = two_dimensions(seed)
    assert 3.5 <= relative_error(coarse) / relative_error(fine) <= 5


def test_closed_form_is_the_least_of_its_family():
    """E(κ) of 1 + cos κx by quadrature, minimised over κ, is 5κ²/6 at the stated κ."""
    form = closed_form(3.0, 1)

    def energy(kappa):
        x = np.linspace(-np.pi / kappa, np.pi / kappa, 20001)
        psi = 1 + np.cos(kappa * x)
        psi /= np.sqrt(np.trapezoid(psi**2, x))
        slope = np.gradient(psi, x)
        return 0.5 * np.trapezoid(slope**2, x) + np.trapezoid(psi, x) / 3.0

    assert energy(form.kappa) == pytest.approx(form.energy, rel=1e-6)
    assert energy(0.98 * form.kappa) > form.energy
    assert energy(1.02 * form.kappa) > form.energy
    assert form.extent == pytest.approx(2 * np.pi / form.kappa)


@pytest.mark.parametrize("with_wells", [False, True])
def test_span_approaches_the_eigenfunctions(with_wells):
    shape, lengths = (120,), (50.0,)
    potential = wells(shape, lengths, (5,), depth=1.0, width=1.5) if with_wells else None
    free = CompressedModes(shape, lengths, 1.0, 1.0, potential)
    values, vectors = scipy.linalg.eigh(hamiltonian(free) @ np.eye(120))
    angles, excess = [], []
    for mu in (10.0, 1e3, 1e5):
        modes = compressed_modes(shape, lengths, 5, mu, potential=potential, seed=1)
        angles.append(largest_angle(modes, vectors[:, :5]))
        excess.append(modes.quadratic_energy - values[:5].sum())
    assert angles[1] < 0.15 * angles[0]
    assert angles[2] < 0.05 * angles[1]
    assert angles[2] < 2e-3
    assert min(excess) > -1e-9  # the eigenfunctions have the least quadratic energy
    assert excess[2] < 1e-6


def test_symbol_and_preconditioner():
    objective = CompressedModes((6, 5), (3.0, 2.0), 2.0, 0.1)
    H = hamiltonian(objective) @ np.eye(30)
    np.testing.assert_allclose(
        np.sort(laplacian_symbol(objective), axis=None), 2 * np.linalg.eigvalsh(H), atol=1e-10
    )
    rng = np.random.default_rng(0)
    X, P, Q = (rng.standard_normal((30, 2)) for _ in range(3))
    apply = inverse_hessian(objective, 2)
    assert np.vdot(P, apply(X, Q)) == pytest.approx(np.vdot(apply(X, P), Q))
    assert np.vdot(P, apply(X, P)) > 0


def test_wells_are_periodic_and_as_deep_as_asked():
    V = wells((100, 60), (10.0, 6.0), (5, 3), depth=2.0, width=0.2)
    np.testing.assert_allclose(V, np.roll(V, 20, axis=0), atol=1e-12)
    assert V.min() == pytest.approx(-2.0, rel=1e-3)
    assert V.max() <= 0


@pytest.mark.parametrize("shape", [(60,), (16, 16)])
def test_plot(shape, tmp_path):
    modes = compressed_modes(shape, [10.0] * len(shape), 2, 5.0, stages=(0.1,))
    plot(modes, str(tmp_path / "modes.png"))
    assert (tmp_path / "modes.png").stat().st_size > 1000


def test_misuse():
    with pytest.raises(ValueError, match="dimension is 3"):
        closed_form(5.0, 3)
    with pytest.raises(ValueError, match="stages"):
        compressed_modes((10,), (1.0,), 1, 5.0, stages=())


FIVE_WELLS = {"shape": [300], "lengths": [50.0], "number": 5, "mu": 10.0}


def five_wells(scale=1.0, **options):
    """In another unit of length the same problem."""
    shape, lengths = FIVE_WELLS["shape"], [length * scale for length in FIVE_WELLS["lengths"]]
    potential = wells(shape, lengths, [5], 1.0 / scale**2, scale)
    mu = FIVE_WELLS["mu"] * scale**2.5
    return compressed_modes(shape, lengths, 5, mu, potential=potential, **options)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 50.0])
def test_results_do_not_depend_on_the_unit_of_length(scale):
    one, other = five_wells(), five_wells(scale)
    assert other.energy * scale**2 == pytest.approx(one.energy, rel=1e-6)
    assert other.evaluations == pytest.approx(one.evaluations, rel=0.2)
    assert other.residual == pytest.approx(one.residual, abs=2e-3)


def test_default_start_is_as_good_as_the_best_of_many_and_no_dearer():
    modes = five_wells()
    random = [five_wells(seed=seed) for seed in range(4)]
    assert modes.energy <= min(r.energy for r in random) + 1e-6 * abs(modes.energy)
    free = compressed_modes([300], [60.0], 6, 20.0)
    others = [compressed_modes([300], [60.0], 6, 20.0, seed=seed).evaluations for seed in range(3)]
    assert free.evaluations <= 1.1 * sum(others) / 3


def test_residual_falls_with_the_smoothing():
    residuals = [five_wells(stages=STAGES[:i], gtol=0.0).residual for i in (2, 4, 6)]
    assert residuals[2] < 3e-3
    assert residuals[2] < 0.3 * residuals[0]


def test_residual_sees_a_wrong_mode():
    modes = five_wells(gtol=0.0)
    wrong = replace(modes, X=np.roll(modes.X, 3, axis=0))
    assert wrong.residual > 10 * modes.residual


def test_scdm_functions_are_localised_and_span_the_eigenfunctions():
    modes = five_wells()
    X = scdm_start(modes.objective, 5)
    np.testing.assert_allclose(X.T @ X, np.eye(5), atol=1e-12)
    H = hamiltonian(modes.objective) @ np.eye(300)
    values = np.linalg.eigvalsh(H)[:5]
    np.testing.assert_allclose(np.linalg.eigvalsh(X.T @ H @ X), values, atol=5e-3)
    centres = np.argmax(np.abs(X), axis=0)
    assert len(np.unique(centres // 60)) == 5  # one in each well


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"number": 0}, "number is 0"),
        ({"number": 2.5}, r"number is 2\.5"),
        ({"mu": 0.0}, r"mu 0\.0"),
        ({"mu": -1.0}, r"mu -1\.0"),
        ({"mu": np.inf}, "finite"),
        ({"lengths": (-5.0,)}, "lengths"),
        ({"potential": np.full(40, np.nan)}, "finite"),
    ],
)
def test_what_has_no_meaning_is_refused(wrong, words):
    options = {"shape": (40,), "lengths": (5.0,), "number": 2, "mu": 5.0, **wrong}
    with pytest.raises(ValueError, match=words):
        compressed_modes(**options)
