"""What is minimised: each objective with its gradient and, where there is one, its known answer."""

from ._base import Objective
from .brockett import Brockett, brockett_condition_number, optimal_weights
from .compressed_modes import CompressedModes
from .joint_diagonalization import JointDiagonalization
from .kohn_sham import KohnSham
from .log_sum_exp import LogSumExp
from .maxcut import MaxCut
from .procrustes import Procrustes
from .quadratic import Quadratic
from .rayleigh import Rayleigh, rayleigh_condition_number
from .synchronization import RotationSynchronization

__all__ = [
    "Brockett",
    "CompressedModes",
    "JointDiagonalization",
    "KohnSham",
    "LogSumExp",
    "MaxCut",
    "Objective",
    "Procrustes",
    "Quadratic",
    "Rayleigh",
    "RotationSynchronization",
    "brockett_condition_number",
    "optimal_weights",
    "rayleigh_condition_number",
]
