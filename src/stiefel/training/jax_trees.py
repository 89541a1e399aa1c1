"""Which parameter of a JAX tree is what: a value for each leaf, by its path.

A choice is given in one of three ways:

    one value           the same for every parameter,
    a tree of values    with the structure of the parameters, or with a value where they have
                        a whole subtree; None and what is missing mean "no value",
    f(path, parameter)  a function; the path is the keys joined by "/", for example
                        "params/Dense_0/kernel" or "layers/0/weight".

Paths are looked up one by one, because optax shows a transformation trees in which the parameters
of others are cut out: the structures then differ, the paths do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from stiefel.types import Array

Path = tuple[Any, ...]


def path_name(path: Path) -> str:
    """The keys of a path joined by "/"."""
    return "/".join(_key_name(key) for key in path)


def _key_name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def leaves_with_paths(tree: Any) -> list[tuple[Path, Array]]:
    return list(jax.tree_util.tree_flatten_with_path(tree)[0])


class Choice:
    """``choice(path, parameter)``: what was given for the parameter at a path, or ``default``."""

    def __init__(self, given: Any, default: Any = None) -> None:
        self._default = default
        listed = jax.tree_util.tree_flatten_with_path(given)[0]
        self._one = len(listed) == 1 and not listed[0][0]  # a value or a function, not a tree
        self._function: Callable[[str, Array], Any] | None = None
        self._values = {} if self._one else dict(listed)
        if self._one and callable(given):
            self._function = given
        self._given = given

    @property
    def named(self) -> bool:
        """Whether parameters are told apart, by a tree or by a function."""
        return self._function is not None or bool(self._values)

    def __call__(self, path: Path, parameter: Array) -> Any:
        if self._function is not None:
            return self._function(path_name(path), parameter)
        if self._one:
            return self._given
        for length in range(len(path), -1, -1):
            if path[:length] in self._values:
                return self._values[path[:length]]
        return self._default

    def check_paths(self, tree: Any) -> None:
        """Refuse a value for a path that the parameters do not have."""
        if not self._values or not jax.tree_util.tree_leaves(tree):
            return
        listed = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_gap)[0]
        known = {path[:length] for path, _ in listed for length in range(len(path) + 1)}
        gaps = {path for path, node in listed if _is_gap(node)}
        for path in self._values:
            hidden = any(path[:length] in gaps for length in range(len(path) + 1))
            if path not in known and not hidden:
                raise ValueError(
                    f"a choice was given for {path_name(path)!r}, and no parameter has this path; "
                    f"expected some of {', '.join(path_name(p) for p, _ in listed[:8])}"
                )


def _is_gap(node: Any) -> bool:
    """A place without arrays: None, or what optax puts where a parameter is cut out."""
    return not jax.tree_util.tree_leaves(node)
