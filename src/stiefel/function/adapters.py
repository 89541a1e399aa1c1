"""What users pass as a function, in one form, and what it returns, checked.

A function is taken apart into up to three: value, value with gradient, and gradient alone.  Errors
say what was returned, what was expected and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stiefel.backends.arrays import describe, is_array, library
from stiefel.backends.host import are_compiled
from stiefel.types import Array

from .borrowed import LIBRARIES, Borrowed
from .differences import DIFFERENCE_RULES, Differences
from .trees import Tree

NAMES = '"2-point", "3-point", "cs", "jax" or "torch"'
FREE = (
    'jac="jax" or jac="torch" differentiates a function written with that library, jac="3-point" '
    "takes differences of its values"
)
IMAGINARY = 1e-8  # relative to the real part: more than rounding
Pair = tuple[Any, Any, Any]  # value, gradient, aux, as the user returned them


def adapt(
    fun: Any, jac: Any, leaves: tuple[Array, ...], tree: Tree
) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """(value or None, pair or None, separate gradient or None)."""
    leaf = leaves[0]
    if hasattr(fun, "value_and_gradient"):
        pair = fun.value_and_gradient
        return getattr(fun, "value", None), pair, None
    if not callable(fun):
        raise TypeError(
            f"fun is {describe(fun)}; expected a function of X, or an object with "
            "value_and_gradient(X)"
        )
    if callable(jac):
        return fun, None, jac
    if isinstance(jac, str):
        return _by_name(fun, jac, leaves, tree)
    if jac not in (None, True):
        raise TypeError(f"jac is {jac!r}; expected a function of X, True, None or {NAMES}")
    if jac is None and library(leaf) in ("torch", "jax"):
        from .autodiff import differentiate

        value, pair = differentiate(fun, library(leaf), tree)
        return value, pair, None
    return None, fun, None


def _by_name(
    fun: Callable[[Any], Any], jac: str, leaves: tuple[Array, ...], tree: Tree
) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Pair] | None, Callable[[Any], Any] | None]:
    if jac in DIFFERENCE_RULES:
        differences = Differences(fun, jac, tree, leaves)
        return differences.value, None, differences.gradient
    if jac in LIBRARIES:
        return *Borrowed(jac, tree, leaves).functions(fun), None
    raise ValueError(f"jac is {jac!r}; expected a function of X, True, None or {NAMES}")


def is_compiled(fun: Any, jac: Any) -> bool:
    """Whether every function that takes a point is compiled."""
    if isinstance(jac, str):
        return False
    if hasattr(fun, "value_and_gradient"):
        return are_compiled(filter(None, (fun.value_and_gradient, getattr(fun, "value", None))))
    return are_compiled((fun, jac) if callable(jac) else (fun,))


def adapt_hessian(
    fun: Any, jac: Any, hessp: Any, leaves: tuple[Array, ...], tree: Tree
) -> Callable[[Any, Any], Any] | None:
    """The user's ``hessp``, the objective's own, autodiff's, or None."""
    if hessp is not None and not callable(hessp):
        raise TypeError(f"hessp is {describe(hessp)}; expected a function of (X, V)")
    hessp = hessp or getattr(fun, "hessp", None)
    if hessp is not None:
        return hessp
    if isinstance(jac, str) and jac in LIBRARIES:
        return Borrowed(jac, tree, leaves).hessian_product(fun)
    given, leaf = jac is not None or hasattr(fun, "value_and_gradient"), leaves[0]
    if given or library(leaf) not in ("torch", "jax"):
        return None
    from .autodiff import differentiate_twice

    return differentiate_twice(fun, library(leaf), tree)


def as_pair(returned: Any, name: str) -> Pair:
    """(value, gradient, aux) of what the user's function returned."""
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned[0], returned[1], None
    if isinstance(returned, tuple) and len(returned) == 3:
        return returned
    if is_array(returned) and library(returned) in ("torch", "jax"):
        raise TypeError(
            f"{name}(X) returned {describe(returned)}, and X0 is a NumPy array; "
            + _in_the_library(library(returned))
        )
    given = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else describe(returned)
    raise TypeError(
        f"{name}(X) returned {given}; expected (value, gradient) or (value, gradient, aux): "
        f"return the gradient too, or pass it as jac=.  If fun returns its value only: {FREE}"
    )


def _in_the_library(name: str) -> str:
    """How to start in the library in which fun computes."""
    if name == "torch":
        return (
            'pass jac="torch" if fun is written with PyTorch, or torch.as_tensor(X0): then '
            "gradients come from autodiff"
        )
    return (
        'pass jac="jax" if fun is written with JAX, or jax.numpy.asarray(X0): then gradients come '
        "from autodiff.  With the latter JAX computes in float32 unless "
        'jax.config.update("jax_enable_x64", True) is called first'
    )


def as_float(value: Any) -> float:
    if isinstance(value, (float, np.floating)):
        return float(value)  # NumPy's float64 is a float, too, but warns where floats do not
    if isinstance(value, tuple):
        raise TypeError(
            f"fun(X) returned a tuple of {len(value)} where a value was expected: "
            "pass jac=True if fun returns (value, gradient)"
        )
    shape = getattr(value, "shape", ())
    no_number = value is None or isinstance(value, (str, bytes, bool, np.bool_))
    if no_number or len(shape):
        raise TypeError(f"the value of fun is {describe(value)}; expected a real scalar")
    kind = getattr(getattr(value, "dtype", None), "kind", None)  # PyTorch has no kinds
    if kind == "f" and library(value) == "jax":
        return float(np.asarray(value))  # JAX's own way takes twenty microseconds longer
    if isinstance(value, (complex, np.complexfloating)):
        return _real_part(complex(value))
    try:
        return float(value)
    except TypeError as error:
        raise TypeError(
            f"the value of fun is {describe(value)}; expected a real scalar (return its real part?)"
        ) from error


def _real_part(value: complex) -> float:
    """Of a value that should be real: an imaginary part beyond rounding is a mistake."""
    if abs(value.imag) > IMAGINARY * abs(value.real):
        raise TypeError(
            f"the value of fun is complex, {value}; expected a real scalar.  If f is real in "
            "theory, look for a matrix that is not Hermitian; otherwise return the real part"
        )
    return value.real


def validated_gradient(G: Any, X: Array, name: str) -> Array:
    if type(G) is type(X) and G.shape == X.shape and G.dtype == X.dtype:
        return G  # quickly, as it should be
    if isinstance(X, np.ndarray) and isinstance(G, (list, np.generic, float, int)):
        G = np.asarray(G, dtype=X.dtype)
    if not is_array(G) or library(G) != library(X):
        hint = ""
        if isinstance(X, np.ndarray) and is_array(G) and library(G) in ("torch", "jax"):
            hint = "; " + _in_the_library(library(G))
        raise TypeError(
            f"{name} is {describe(G)}; expected an array of the library of X ({library(X)}){hint}"
        )
    if tuple(G.shape) != tuple(X.shape):
        raise ValueError(f"{name} has shape {tuple(G.shape)}; expected {tuple(X.shape)}, as X has")
    if G.dtype != X.dtype:
        raise TypeError(
            f"{name} has dtype {G.dtype}; expected {X.dtype}, as X has: {_convert(G, X)}"
        )
    return G


def _convert(G: Array, X: Array) -> str:
    if "complex" in str(G.dtype) and "complex" not in str(X.dtype):
        return (
            "start from a complex X0 if the matrices are complex, for example "
            "X0.astype(complex) or random_point(..., dtype=complex)"
        )
    return "convert it"
