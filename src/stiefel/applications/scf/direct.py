"""An SCF object that converges by direct minimisation, as ``mf.newton()`` does by Newton steps."""

from __future__ import annotations

from typing import Any, ClassVar

from .run import Options, check_mean_field, run_mean_field


class Direct:
    """The part of `direct` that replaces ``kernel``; everything else is the object's own class."""

    __name_mixin__ = "Direct"
    _keys: ClassVar[set[str]] = {"minimization", "direct_options", "cycles"}

    minimization: Any
    direct_options: Options

    def __init__(self, mf: Any, options: Options) -> None:
        self.__dict__.update(mf.__dict__)
        self.direct_options, self.minimization = options, None

    def kernel(
        self, dm0: Any = None, mo_coeff: Any = None, mo_occ: Any = None, **unused: Any
    ) -> float:
        """Minimise; with orbitals and their occupations, from these."""
        del unused
        mf: Any = self
        if isinstance(dm0, str):
            dm0 = mf.from_chk(dm0)
        if mo_coeff is not None and mo_occ is not None and dm0 is None:
            mf.mo_coeff, mf.mo_energy, mf.mo_occ = mo_coeff, None, mo_occ
        return float(run_mean_field(mf, self.direct_options, dm0).e_tot)

    scf = kernel

    def undo_direct(self) -> Any:
        """The object without this layer, with the results it has."""
        from pyscf import lib

        plain = lib.view(self, lib.drop_class(self.__class__, Direct))
        del plain.direct_options
        return plain

    def dump_flags(self, verbose: Any = None) -> Any:
        from pyscf.lib import logger

        mf: Any = super()
        mf.dump_flags(verbose)
        logger.new_logger(self, verbose).info("direct minimisation: %s", self.direct_options)
        return self


def direct(mf: Any, **options: Any) -> Any:
    """An object like ``mf`` whose ``kernel`` minimises the energy.

    Scanners, nuclear gradients, geometry optimisation, TDDFT, MP2, CCSD and CASSCF use it as any
    SCF object.  ``mf`` itself stays as it is; ``undo_direct()`` gives an object of its class back.

    Parameters
    ----------
    mf
        An object that `minimize` takes.
    **options
        ``diis kick mix seed starts check smearing gtol maxfun method callback progress`` of
        `minimize`.

    Returns
    -------
    The object; after ``kernel()`` it has an `Outcome` as ``minimization``.

    Raises
    ------
    TypeError
        For an option that does not exist, and for what is no mean-field object.

    Examples
    --------
    >>> from pyscf import gto, scf
    >>> mol = gto.M(atom="H 0 0 0; F 0 0 0.92", basis="sto-3g", verbose=0)
    >>> mf = direct(scf.RHF(mol))
    >>> round(mf.kernel(), 6)
    -98.569855
    """
    from pyscf import lib

    read = Options(**options)
    check_mean_field(mf)
    if isinstance(mf, Direct):
        mf = mf.undo_direct()
    return lib.set_class(Direct(mf, read), (Direct, mf.__class__))
