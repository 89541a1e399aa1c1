"""Where the minimisation starts: PySCF's own guess, some cycles of DIIS, and perturbations."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

from .builder import Build, FockBuilder
from .canonical import canonical, canonical_levels, probe
from .energy import Ansatz, Energy, OrbitalPoint, Orbitals
from .ensemble import FreeEnergy, Smearing, smearing_of
from .layout import OrbitalLayout, at_place, layout_of
from .open_shell import OpenShellEnergy

NEARLY_CONVERGED = 1e-3  # Ha, of PySCF's gradient
DIIS_CYCLES = 8  # before a descent
LONGER = 3  # times the cycles asked for, at most, while DIIS converges


class Start(NamedTuple):
    """An energy with the point to start from, as coordinates in its own orthonormal basis."""

    energy: Any  # an Ansatz
    occupied: OrbitalPoint  # Y of every block
    virtual: OrbitalPoint
    cycles: int = 0  # of DIIS


def start(
    mf: Any,
    dm0: Any = None,
    *,
    diis: int = 0,
    smearing: Smearing | None = None,
    confined: bool = False,
) -> Start:
    """The energy of ``mf`` and the orbitals to start from.

    The orbitals of ``mf`` where it has some and ``dm0`` is not given; otherwise those of the Fock
    matrix of ``dm0``, by default PySCF's initial guess, which costs one build; then ``diis`` cycles
    of PySCF's own iteration, each one build.  They come by rising energy and `canonical` within
    their levels: the two orbitals at the gap are a pair of the same direction where their levels
    are degenerate.
    """
    layout, builder = layout_of(mf), FockBuilder(mf)
    A = probe(mf.mol, builder.overlap)
    own = mf.mo_coeff is not None and mf.mo_occ is not None
    if dm0 is None and own and diis < 2 and builder.is_basis(mf.mo_coeff, layout.places):
        orbitals, build, cycles = Orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ), None, 0
    else:
        if dm0 is None:
            dm0 = mf.make_rdm1() if own else mf.get_init_guess(mf.mol, mf.init_guess)
        if not builder.electrons:
            raise ValueError(
                f"{type(mf).__name__} holds no electrons; there is nothing to minimise"
            )
        orbitals = _of_fock(builder, builder(dm0).matrices, A)
        orbitals, build, cycles = iterated(builder, orbitals, diis, smearing is not None)
    if smearing is not None:
        same = build if smearing == smearing_of(mf) else None  # PySCF's occupations are these
        return _ensemble(builder, layout, orbitals, smearing, cycles, same)
    labels = mf.get_orbsym(orbitals.coefficients) if confined else None
    orbitals = _ordered(layout, orbitals, A, labels)
    energy = _energy_of(builder, layout, orbitals)
    C, V = _corners(energy)
    if build is not None:
        energy.hold(C, build)
    return Start(energy, C, V, cycles)


def _of_fock(builder: FockBuilder, F: Any, A: Array) -> Orbitals:
    mf = builder.mf
    energies, C = builder.diagonalise(F)
    if not mf.mol.symmetry:  # which labels the orbitals, and occupies them by label
        energies, C = canonical_levels(energies, C, A)
    return Orbitals(C, energies, mf.get_occ(energies, C))


def iterated(
    builder: FockBuilder, first: Orbitals, cycles: int, patient: bool
) -> tuple[Orbitals, Any, int]:
    """The orbitals of lowest energy in some of PySCF's cycles, with the build at them.

    The first of the ``cycles`` is the step from the guess to ``first``.  PySCF's callback and
    checkpoint file see every cycle.
    """
    if cycles < 2:
        return first, None, 0
    from pyscf.scf import hf

    mf, done = builder.mf, 0
    best: list[Any] = []  # the build, its orbitals, the energy
    watch = _Watch(cycles - 1, mf, patient)

    def keep(envs: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        value = mf.e_free if patient and smearing_of(mf) else envs["e_tot"]
        if not best or value <= best[2]:
            build = Build(float(envs["e_tot"]), envs["fock"], envs["dm"], envs["vhf"])
            orbitals = Orbitals(envs["mo_coeff"], envs["mo_energy"], envs["mo_occ"])
            best[:] = [build, orbitals, value]
        if callable(mf.callback):
            mf.callback(envs)

    with _set(mf, max_cycle=LONGER * cycles * (1 + patient), check_convergence=watch):
        hf.kernel(
            mf,
            mf.conv_tol,
            mf.conv_tol_grad,
            dump_chk=bool(mf.chkfile),
            dm0=mf.make_rdm1(first.coefficients, first.filling),
            callback=keep,
            conv_check=False,
        )
    builder.builds += 1 + done
    return best[1], best[0], done


class _Watch:
    """When DIIS has done its part: after its cycles, unless it is about to converge.

    Where the gradient is small and still halves with every cycle, no other method is cheaper.
    With fractional occupations DIIS goes on while any ``cycles`` of it reach a new gradient.
    """

    def __init__(self, cycles: int, mf: Any, patient: bool) -> None:
        self.cycles, self.tolerance, self.patient = cycles, mf.conv_tol, patient
        self.gradient = mf.conv_tol_grad or math.sqrt(mf.conv_tol)
        self.before = self.best = math.inf
        self.progress = 0  # the cycle of the last one

    def __call__(self, envs: dict[str, Any]) -> bool:
        norm, cycle = float(envs["norm_gorb"]), envs["cycle"] + 1
        if abs(envs["e_tot"] - envs["last_hf_e"]) < self.tolerance and norm < self.gradient:
            return True
        fast = norm < NEARLY_CONVERGED and norm < 0.5 * self.before
        self.before = norm
        if norm < 0.7 * self.best:
            self.best, self.progress = norm, cycle
        since = self.progress if self.patient else 0
        return bool(cycle - since >= self.cycles and not fast)


class _set:
    """Attributes of ``mf`` for a while."""

    def __init__(self, mf: Any, **values: Any) -> None:
        self.mf, self.values = mf, values

    def __enter__(self) -> None:
        held = self.mf.__dict__
        self.before = {name: held[name] for name in self.values if name in held}
        held.update(self.values)

    def __exit__(self, *_: object) -> None:
        for name in self.values:
            del self.mf.__dict__[name]
        self.mf.__dict__.update(self.before)


def _ordered(layout: OrbitalLayout, given: Orbitals, A: Array, labels: Any) -> Orbitals:
    """Occupied before virtual orbitals, each by rising energy and `canonical` in their levels."""
    C, filling, names = [], [], []
    for place in layout.places:
        parts = [at_place(a, place) for a in (given.coefficients, given.filling)]
        kept = np.linalg.norm(parts[0], axis=0) > 0
        c, f = parts[0][:, kept], parts[1][kept]
        e = _energies(given.energies, place, f, kept)
        label = np.zeros(len(f)) if labels is None else at_place(labels, place)[kept]
        order = np.lexsort((np.arange(len(f)), -f))
        C.append(np.hstack([_canonical(c[:, f == n], e[f == n], A, n, labels) for n in (2, 1, 0)]))
        filling.append(f[order])
        names.append(label[order])
    nested = layout.nest(C), None, layout.nest(filling)
    return Orbitals(*nested, None if labels is None else layout.nest(names))


def _canonical(C: Array, energies: Array, A: Array, electrons: float, labels: Any) -> Array:
    if labels is not None:  # in their order, with their labels
        return C
    return canonical(C, energies, A if electrons else -A)


def _energies(nested: Any, place: Any, filling: Array, kept: Array) -> Array:
    if nested is None:
        return np.arange(len(filling), dtype=float)
    return at_place(nested, place)[kept]


def _energy_of(builder: FockBuilder, layout: OrbitalLayout, orbitals: Orbitals) -> Any:
    C, filling = orbitals.coefficients, orbitals.filling
    if "ROHF" not in {c.__name__ for c in type(builder.mf).__mro__}:
        return Energy(builder, layout.filled_as(C, filling, orbitals.labels))
    whole = np.asarray(filling)
    if builder.mf.mol.spin < 0 or not np.all(np.isin(whole, (0, 1, 2))):
        raise ValueError(
            "restricted open shells need orbitals with 0, 1 or 2 electrons and spin ≥ 0: "
            "use an unrestricted object (UHF, UKS)"
        )
    occupied = np.where(whole > 0, layout.occupation, 0.0)
    return OpenShellEnergy(builder, layout.filled_as(C, occupied), int(np.sum(whole == 2)))


def _corners(energy: Ansatz) -> tuple[OrbitalPoint, OrbitalPoint]:
    """Y of the occupied and of the virtual orbitals where X itself holds both, in this order."""
    occupied, virtual = [], []
    for block in energy.layout.active:
        m = block.X.shape[1]
        unit = np.eye(m, dtype=_dtype(energy, block.X))
        occupied.append(unit[:, : block.occupied].copy())
        virtual.append(unit[:, block.occupied :].copy())
    return tuple(occupied), tuple(virtual)


def _dtype(energy: Ansatz, X: Array) -> Any:
    """Complex where PySCF's matrices are."""
    core = energy.builder.core
    return np.result_type(X.dtype, np.asarray(core[0] if isinstance(core, list) else core).dtype)


def _ensemble(
    builder: FockBuilder,
    layout: OrbitalLayout,
    given: Orbitals,
    smearing: Smearing,
    cycles: int,
    build: Build | None,
) -> Start:
    if given.energies is None:
        raise ValueError("orbitals without energies cannot start fractional occupations: pass dm0=")
    energies = []
    full = layout.filled_as(given.coefficients, _nothing(layout, given.coefficients))
    for place in layout.places:
        kept = np.linalg.norm(at_place(given.coefficients, place), axis=0) > 0
        energies.append(np.asarray(at_place(given.energies, place)[kept]))
    energy = FreeEnergy(builder, full, smearing)
    pairs = zip(full.blocks, energies, strict=True)
    H = tuple(np.diag(e).astype(_dtype(energy, b.X)) for b, e in pairs)
    if build is not None:
        energy.hold(H, build)
    return Start(energy, H, (), cycles)


def _nothing(layout: OrbitalLayout, mo_coeff: Any) -> Any:
    return layout.nest([np.zeros(at_place(mo_coeff, p).shape[1]) for p in layout.places])


def kicked(C: OrbitalPoint, V: OrbitalPoint, fraction: float, seed: Any = None) -> OrbitalPoint:
    """C moved into random virtual orbitals by ``fraction`` of its norm.

    A start with the symmetry of the molecule keeps it, and may end on a saddle; a kick does not.
    """
    rng = np.random.default_rng(seed)
    return tuple(_rotated(c, v, _random(c, v, fraction, rng)) for c, v in zip(C, V, strict=True))


def shaken(H: OrbitalPoint, size: float, seed: Any = None) -> OrbitalPoint:
    """H with a random Hermitian matrix added whose elements have this size, in Ha."""
    rng = np.random.default_rng(seed)
    noise = [rng.standard_normal(h.shape).astype(h.dtype) for h in H]
    return tuple(h + 0.5 * size * (n + n.conj().T) for h, n in zip(H, noise, strict=True))


def mixed(C: OrbitalPoint, V: OrbitalPoint, angle: float) -> OrbitalPoint:
    """The highest occupied orbital of the first spin turned by ``angle`` into the lowest virtual.

    The usual way to tell the two spins of a singlet apart.  C and V as `start` gives them: where
    these levels are degenerate, as π and π* are, the pair is chosen there.
    """
    c = C[0].copy()
    c[:, -1] = np.cos(angle) * C[0][:, -1] + np.sin(angle) * V[0][:, 0]
    return (c, *C[1:])


def check_mixable(start: Start) -> None:
    """``ValueError`` where there are no two spins whose orbitals could be told apart."""
    layout = start.energy.layout
    if layout.spins != 2 or layout.samples or not start.virtual or not start.virtual[0].shape[1]:
        raise ValueError(
            "mix turns the highest orbital of one of two spins into its lowest virtual one; use an "
            f"unrestricted molecule (UHF, UKS) with virtual orbitals, not "
            f"{type(start.energy.builder.mf).__name__}"
        )


def _random(c: Array, v: Array, fraction: float, rng: np.random.Generator) -> Array:
    K = rng.standard_normal((v.shape[1], c.shape[1])).astype(c.dtype)
    if c.dtype.kind == "c":
        K += 1j * rng.standard_normal(K.shape)
    size = float(np.linalg.norm(K))
    return K * (fraction * np.sqrt(c.shape[1]) / size) if size else K


def _rotated(c: Array, v: Array, K: Array) -> Array:
    """(C + V K)(I + KᴴK)^{-1/2}, orthonormal as C and V are."""
    values, vectors = np.linalg.eigh(np.eye(c.shape[1]) + K.conj().T @ K)
    return (c + v @ K) @ (vectors * values**-0.5) @ vectors.conj().T
