"""How a run on several ranks begins: who takes part, and whether they agree on the problem."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from stiefel.backends.arrays import describe, is_true, library
from stiefel.backends.rank_kernels import _to_numpy
from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.function.counted import CountedObjective


def check_value(value: str) -> None:
    if value not in ("local", "global"):
        raise ValueError(
            f"value is {value!r}; expected 'local' (fun returns this rank's share of f) or "
            "'global' (fun returns the total on every rank)"
        )


def join(comm: Any) -> Alone | Ranks:
    """The ranks of ``comm``; `ALONE` where there is only one, which is the serial program.

    Whatever else is wrong with the arguments must be said after it: the other ranks are waiting.
    """
    if comm is None:
        return ALONE
    if not (hasattr(comm, "Allreduce") and hasattr(comm, "Get_size")):
        raise TypeError(
            f"comm is {describe(comm)}; expected an mpi4py communicator such as MPI.COMM_WORLD"
        )
    return Ranks(comm) if comm.Get_size() > 1 else ALONE


def agree(
    ranks: Alone | Ranks, leaves: Mapping[str, tuple[Any, Any, bool]], options: Mapping[str, Any]
) -> None:
    """Refuse, on every rank, starts that do not fit together.

    ``leaves`` maps names to (array, manifold, rows on ranks).
    """
    if ranks is ALONE:
        return
    facts: dict[str, str] = {}
    for name, (leaf, manifold, distributed) in leaves.items():
        facts[f"the number of axes of {name}"] = str(len(leaf.shape))
        facts[f"the dtype of {name}"] = str(leaf.dtype)
        facts[f"the array library of {name}"] = library(leaf)
        facts[f"the manifold of {name}"] = type(manifold).__name__
        facts[f"B of {name}"] = "given" if getattr(manifold, "B", None) is not None else "None"
        if distributed:
            vector = type(manifold).__name__ == "Sphere" and leaf.shape[-1] != 1
            other = leaf.shape[:-1] if vector else (*leaf.shape[:-2], *leaf.shape[-1:])
            facts[f"the shape of {name} apart from its rows"] = str(tuple(other))
        else:
            digest = hashlib.sha256(_to_numpy(leaf).tobytes()).hexdigest()
            facts[f"the shape of {name}, of which every rank holds a copy,"] = str(leaf.shape)
            facts[f"{name}, of which every rank holds a copy,"] = f"an array (digest {digest[:8]})"
    for name, option in options.items():
        facts[name] = _stable(option)
    ranks.compare(facts)


def _stable(option: Any) -> str:
    """A text of the option without addresses; functions only count as given."""
    if callable(option) and not hasattr(option, "step"):
        return "given"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(option))


def shared_callback(
    ranks: Alone | Ranks, callback: Callable[[Any], Any] | None
) -> Callable[[Any], bool] | None:
    """A callback that stops all ranks if it returns True on one; one more message a call."""
    if callback is None or not isinstance(ranks, Ranks):
        return callback

    def call(snapshot: Any) -> bool:
        return ranks.total(ranks.guard(lambda: is_true(callback(snapshot)), bool)) > 0

    return call


def guarded(
    ranks: Alone | Ranks, function: Callable[..., Any] | None, objective: CountedObjective
) -> Callable[..., Any] | None:
    """A local function (X, V, …) -> like V whose error travels with the next message.

    Of leaves that every rank holds in full rank 0's answer is taken: one ulp between two ranks
    would lead them to two different ends.
    """
    if function is None:
        return None

    def call(X: Any, V: Any, *others: Any) -> Any:
        return objective.common(ranks.guard(lambda: function(X, V, *others), lambda: V))

    return call
