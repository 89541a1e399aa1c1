"""Pose graphs in g2o's text format, read as problems of rotation synchronisation.

An edge ``EDGE_SE2 i j x y θ I…`` or ``EDGE_SE3:QUAT i j x y z qx qy qz qw I…`` measures the pose
of j as seen from i: R_iᵀR_j, and the upper triangle of its information matrix.  Here a measurement
is R_ij ≈ Q_iQ_jᵀ, so that the rotations found are the transposes of the poses': Q_i = R_iᵀ.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from stiefel.objectives import RotationSynchronization
from stiefel.types import Array

MAX_GRAPH_BYTES = 500_000_000
LARGEST_NAME = 2**62  # of a node
ROUNDED_ZERO = 1e-9  # of the largest eigenvalue: files hold a few digits
FIELDS = {"EDGE_SE2": (3, 3), "EDGE_SE3:QUAT": (7, 6)}  # numbers of a pose, rows of the information


@dataclass(frozen=True, eq=False)
class PoseGraph:
    """A graph of relative poses.

    ``problem`` numbers the nodes from 0; ``names`` are their numbers in the file, and
    ``translations`` the measured ones, of which the rotations do not depend.
    """

    problem: RotationSynchronization
    names: Array
    translations: Array


class _Edge(NamedTuple):
    place: str  # file and line
    first: int
    second: int
    pose: list[float]
    information: list[float]


def read_g2o(path: str | os.PathLike[str]) -> PoseGraph:
    """The relative rotations of a g2o file, in two or three dimensions.

    Parameters
    ----------
    path
        The file.  Lines of other kinds (vertices, fixed nodes, comments) are passed over.

    Returns
    -------
    PoseGraph
        Weights are those of the rotations' information: its θθ entry in two dimensions,
        3/(2 tr I_R⁻¹) of its rotational block I_R in three.

    Raises
    ------
    ValueError
        If the file has no edges, edges of two kinds, numbers that are none, an edge from a node to
        itself, a quaternion of zeros, or information that is negative; with the line.
    """
    file = Path(path)
    if not file.is_file() or file.stat().st_size > MAX_GRAPH_BYTES:
        raise ValueError(
            f"{file} is not a file of at most {MAX_GRAPH_BYTES} bytes; expected a g2o file"
        )
    edges: list[_Edge] = []
    kinds: set[str] = set()
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and words[0] in FIELDS:
                kinds.add(words[0])
                edges.append(_edge(words, f"{file.name}, line {number}"))
    if len(kinds) != 1:
        raise ValueError(
            f"{file.name} has edges of {len(kinds)} kinds; expected one of {[*FIELDS]}"
        )
    return _graph(edges, kinds.pop())


def _edge(words: list[str], place: str) -> _Edge:
    pose, rows = FIELDS[words[0]]
    expected = 3 + pose + rows * (rows + 1) // 2
    if len(words) < expected:
        raise ValueError(f"{place}: {len(words)} fields; expected {expected}")
    try:
        first, second = int(words[1]), int(words[2])
        numbers = [float(word) for word in words[3:expected]]
    except ValueError:
        raise ValueError(f"{place}: {' '.join(words)[:60]!r}; expected numbers") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{place}: a number is not finite")
    if first == second or max(abs(first), abs(second)) > LARGEST_NAME:
        raise ValueError(f"{place}: an edge from {first} to {second}; expected two different nodes")
    return _Edge(place, first, second, numbers[:pose], numbers[pose:])


def _graph(edges: list[_Edge], kind: str) -> PoseGraph:
    pairs = np.array([(e.first, e.second) for e in edges])
    names, index = np.unique(pairs, return_inverse=True)
    poses = np.array([e.pose for e in edges])
    information = _matrices(np.array([e.information for e in edges]), FIELDS[kind][1])
    if kind == "EDGE_SE2":
        c, s = np.cos(poses[:, 2]), np.sin(poses[:, 2])
        R = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
        weights, translations = information[:, 2, 2], poses[:, :2]
    else:
        sizes = np.abs(poses[:, 3:]).max(axis=1)
        _check(edges, sizes > 0, "a quaternion of zeros")
        R = Rotation.from_quat(poses[:, 3:] / sizes[:, None]).as_matrix()
        weights, translations = _rotational_weights(information[:, 3:, 3:]), poses[:, :3]
    _check(edges, weights >= 0, "information that is negative")
    problem = RotationSynchronization(index.reshape(pairs.shape), R, weights)
    return PoseGraph(problem, names, translations)


def _check(edges: list[_Edge], correct: Array, fault: str) -> None:
    for wrong in np.flatnonzero(~correct):
        raise ValueError(f"{edges[wrong].place}: {fault}")


def _rotational_weights(information: Array) -> Array:
    """3/(2 tr I⁻¹): zero for a singular I, and negative for an indefinite one."""
    values = np.linalg.eigvalsh(information)
    least, largest = values[:, 0], values[:, -1]
    regular = least > np.finfo(float).tiny
    inverse = np.sum(1.0 / np.where(regular[:, None], values, 1.0), axis=1)
    singular = np.where(least < -ROUNDED_ZERO * np.abs(largest), -1.0, 0.0)
    return np.where(regular, 1.5 / inverse, singular)


def _matrices(upper: Array, rows: int) -> Array:
    """Symmetric matrices from their upper triangles, row by row."""
    i, j = np.triu_indices(rows)
    full = np.zeros((len(upper), rows, rows))
    full[:, i, j] = full[:, j, i] = upper
    return full
