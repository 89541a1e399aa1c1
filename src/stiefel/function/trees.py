"""Points with structure: nested dicts, lists and tuples of arrays, and back."""

from __future__ import annotations

from typing import Any

DEEPEST = 50


class Tree:
    """The structure of a nested dict/list/tuple; its leaves are everything else."""

    def __init__(self, example: Any) -> None:
        _check_depth(example)
        self._example = _skeleton(example)
        self.paths: list[str] = [path for path, _ in _walk(example, "")]

    @property
    def is_leaf(self) -> bool:
        return self._example is None

    def flatten(self, tree: Any, what: str = "value") -> tuple[Any, ...]:
        """The leaves, in a fixed order; an error if the structure is another one."""
        leaves: list[Any] = []
        _collect(self._example, tree, what, leaves)
        return tuple(leaves)

    def unflatten(self, leaves: tuple[Any, ...]) -> Any:
        return _rebuild(self._example, iter(leaves))


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


def _collect(skeleton: Any, x: Any, what: str, out: list[Any]) -> None:
    if skeleton is None:
        out.append(x)
    elif isinstance(skeleton, dict):
        if not isinstance(x, dict) or set(x) != set(skeleton):
            given = sorted(map(str, x)) if isinstance(x, dict) else type(x).__name__
            raise TypeError(f"{what} is {given}; expected a dict with keys {list(skeleton)}")
        for key, part in skeleton.items():
            _collect(part, x[key], f"{what}[{key!r}]", out)
    else:
        if not isinstance(x, (list, tuple)) or len(x) != len(skeleton):
            given = f"{len(x)} items" if isinstance(x, (list, tuple)) else type(x).__name__
            raise TypeError(
                f"{what} is {given}; expected a {type(skeleton).__name__} of {len(skeleton)}"
            )
        for i, part in enumerate(skeleton):
            _collect(part, x[i], f"{what}[{i}]", out)


def _rebuild(skeleton: Any, leaves: Any) -> Any:
    if skeleton is None:
        return next(leaves)
    if isinstance(skeleton, dict):
        return {key: _rebuild(part, leaves) for key, part in skeleton.items()}
    if isinstance(skeleton, tuple) and hasattr(skeleton, "_fields"):
        return type(skeleton)(*(_rebuild(part, leaves) for part in skeleton))
    return type(skeleton)(_rebuild(part, leaves) for part in skeleton)
