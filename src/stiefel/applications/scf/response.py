"""The change of the Fock matrices with the density, by PySCF: second derivatives of the energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .builder import FockBuilder

REFUSALS = (  # of PySCF, for kinds and functionals without response
    NotImplementedError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RuntimeError,
    TypeError,
    ValueError,
    AssertionError,
)


class Responses:
    """dF for dD at the point last asked for, made once for each point; products are counted."""

    def __init__(self, builder: FockBuilder) -> None:
        self.builder, self.products = builder, 0
        self._point: Any = None
        self._change: Callable[[Any], Any] | None = None

    def at(self, aux: Any, orbitals: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The linear map dD ↦ dF, in PySCF's form, at the evaluation ``aux``."""
        if self._point is not aux or self._change is None:
            now = orbitals(aux)
            make = self.builder.mf.gen_response
            self._change = make(now.coefficients, now.filling, hermi=1)
            self._point = aux
        return self._counting

    def _counting(self, dD: Any) -> Any:
        self.products += 1
        assert self._change is not None
        return self._change(dD)

    def offered(self, aux: Any, orbitals: Callable[[Any], Any]) -> bool:
        """Whether PySCF has the response of this kind and functional."""
        try:
            self.at(aux, orbitals)
        except REFUSALS:
            return False
        return True
