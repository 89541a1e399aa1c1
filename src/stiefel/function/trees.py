"""Points with structure: nested dicts, lists and tuples of arrays, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

DEEPEST = 50


class Tree:
    """The structure of a nested dict/list/tuple; its leaves are everything else."""

    def __init__(self, example: Any) -> None:
        _check_depth(example)
        self._example = _skeleton(example)
        self.paths: list[str] = [path for path, _ in _walk(example, "")]
        # The keys of a dict that holds leaves only, as most do: no recursion is needed.
        flat = type(example) is dict and not any(map(_is_node, example.values()))
        self._keys: tuple[Any, ...] = tuple(example) if flat else ()

    @property
    def is_leaf(self) -> bool:
        return self._example is None

    def flatten(self, tree: Any, what: str = "value") -> tuple[Any, ...]:
        """The leaves, in a fixed order; an error if the structure is another one."""
        if self._example is None:
            return (tree,)
        if self._keys and type(tree) is dict and tree.keys() == self._example.keys():
            return tuple([tree[key] for key in self._keys])
        leaves: list[Any] = []
        _collect(self._example, tree, (what,), leaves)
        return tuple(leaves)

    def unflatten(self, leaves: tuple[Any, ...]) -> Any:
        if self._keys:
            return dict(zip(self._keys, leaves, strict=False))
        return leaves[0] if self._example is None else _rebuild(self._example, iter(leaves))


def _check_depth(x: Any, depth: int = 0) -> None:
    """A list that contains itself has no leaves."""
    if depth > DEEPEST:
        raise ValueError(f"x0 is nested more than {DEEPEST} deep, or contains itself")
    for part in x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ():
        _check_depth(part, depth + 1)


def _is_node(x: Any) -> bool:
    return isinstance(x, (dict, list, tuple))


def _skeleton(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _skeleton(v) for key, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_skeleton(v) for v in x))
    if _is_node(x):
        return type(x)(_skeleton(v) for v in x)
    return None


def _walk(x: Any, path: str) -> list[tuple[str, Any]]:
    if not _is_node(x):
        return [(path, x)]
    items = x.items() if isinstance(x, dict) else enumerate(x)
    return [leaf for key, v in items for leaf in _walk(v, f"{path}[{key!r}]")]


def _collect(skeleton: Any, x: Any, where: tuple[Any, ...], out: list[Any]) -> None:
    """The leaves of x below a node; ``where`` it stands is put into words for an error only."""
    if isinstance(skeleton, dict):
        if not isinstance(x, dict) or x.keys() != skeleton.keys():
            given = sorted(map(str, x)) if isinstance(x, dict) else type(x).__name__
            raise TypeError(
                f"{_place(where)} is {given}; expected a dict with keys {list(skeleton)}"
            )
        parts: Iterable[tuple[Any, Any]] = skeleton.items()
    else:
        if not isinstance(x, (list, tuple)) or len(x) != len(skeleton):
            given = f"{len(x)} items" if isinstance(x, (list, tuple)) else type(x).__name__
            kind = type(skeleton).__name__
            raise TypeError(f"{_place(where)} is {given}; expected a {kind} of {len(skeleton)}")
        parts = enumerate(skeleton)
    for key, part in parts:
        if part is None:
            out.append(x[key])
        else:
            _collect(part, x[key], (*where, key), out)


def _place(where: tuple[Any, ...]) -> str:
    what, *keys = where
    return "".join((what, *(f"[{key!r}]" for key in keys)))


def _rebuild(skeleton: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(skeleton, dict):
        return {
            key: next(leaves) if part is None else _rebuild(part, leaves)
            for key, part in skeleton.items()
        }
    parts = (next(leaves) if part is None else _rebuild(part, leaves) for part in skeleton)
    kind = type(skeleton)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
