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
        If the file has no edges, edges of two kinds, or numbers that are none.
    """
    file = Path(path)
    if not file.is_file() or file.stat().st_size > MAX_GRAPH_BYTES:
        raise ValueError(
            f"{file} is not a file of at most {MAX_GRAPH_BYTES} bytes; expected a g2o file"
        )
    edges: list[_Edge] = []
    kinds: set[str] = set()
    with file.open(encoding="utf-8", errors="replace") as lines:
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
    return _Edge(first, second, numbers[:pose], numbers[pose:])


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
        R = Rotation.from_quat(poses[:, 3:]).as_matrix()
        inverse = np.linalg.inv(information[:, 3:, 3:])
        weights = 1.5 / np.trace(inverse, axis1=1, axis2=2)
        translations = poses[:, :3]
    problem = RotationSynchronization(index.reshape(pairs.shape), R, weights)
    return PoseGraph(problem, names, translations)


def _matrices(upper: Array, rows: int) -> Array:
    """Symmetric matrices from their upper triangles, row by row."""
    i, j = np.triu_indices(rows)
    full = np.zeros((len(upper), rows, rows))
    full[:, i, j] = full[:, j, i] = upper
    return full
