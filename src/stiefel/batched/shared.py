"""What the branch-free solver shares with the rest of the library: all its imports of internals.

The formulas of the geometry are those of `stiefel.geometry`, unchanged: they act on stacks and
sum through the kernels that they are given, and the kernels of this package sum for each problem.
Constants of the search, of the learned metric and of the memory are those of `stiefel.solvers`.
"""

from stiefel._minimize import minimize as minimize
from stiefel.arguments import DEFAULT_RTOL as DEFAULT_RTOL
from stiefel.arguments import SINGLE_PRECISION_RTOL as SINGLE_PRECISION_RTOL
from stiefel.arguments import place as check_place
from stiefel.backends.arrays import describe as describe
from stiefel.backends.arrays import is_array as is_array
from stiefel.backends.arrays import kernels_for as kernels_for
from stiefel.backends.arrays import library as library
from stiefel.backends.arrays import own_copy as own_copy
from stiefel.backends.base import Kernels as Kernels
from stiefel.backends.numpy import NumpyKernels as NumpyKernels
from stiefel.backends.numpy import _load_compiled as load_compiled
from stiefel.function.adapters import validated_gradient as validated_gradient
from stiefel.function.trees import Tree as Tree
from stiefel.geometry import Euclidean as Euclidean
from stiefel.geometry import Grassmann as Grassmann
from stiefel.geometry import Sphere as Sphere
from stiefel.geometry import Stiefel as Stiefel
from stiefel.geometry import cayley as cayley
from stiefel.geometry.cayley import Frame as Frame
from stiefel.geometry.feasibility import feasible as feasible
from stiefel.geometry.grassmann import lower_span_gradient as lower_span_gradient
from stiefel.geometry.metric import _rotation as raise_rotation
from stiefel.geometry.metric import mean_metric as mean_metric
from stiefel.geometry.metric import raise_columns as raise_columns
from stiefel.geometry.metric import spread as spread
from stiefel.geometry.metric import squared_change as squared_change
from stiefel.geometry.metric import surely_near as surely_near
from stiefel.geometry.ray import Curvature as Curvature
from stiefel.geometry.ray import Secant as Secant
from stiefel.geometry.ray import Squares as Squares
from stiefel.geometry.ray import secant_pair as secant_pair
from stiefel.geometry.ray import squares as squares
from stiefel.geometry.stiefel import lower_gradient as lower_gradient
from stiefel.runs.driver import MAX_RESTORATIONS as MAX_RESTORATIONS
from stiefel.runs.driver import PATIENCE as PATIENCE
from stiefel.runs.ledger import IMPROVEMENT as IMPROVEMENT
from stiefel.runs.ledger import WINDOW as WINDOW
from stiefel.runs.result import Result as Result
from stiefel.runs.result import Status as Status
from stiefel.runs.stopping import MaxSeconds as MaxSeconds
from stiefel.solvers import METHODS as METHODS
from stiefel.solvers.learned_metric import DWARFED_NORMAL_PART as DWARFED_NORMAL_PART
from stiefel.solvers.learned_metric import INVARIANCE as INVARIANCE
from stiefel.solvers.learned_metric import LearnedMetric as LearnedMetric
from stiefel.solvers.noise import DWARFING_GAPS as DWARFING_GAPS
from stiefel.solvers.noise import LOST_BITS as LOST_BITS
from stiefel.solvers.noise import MARGIN as MARGIN
from stiefel.solvers.noise import PLAUSIBLE as PLAUSIBLE_NOISE
from stiefel.solvers.noise import ROUNDING as ROUNDING
from stiefel.solvers.noise import SHORTER as SHORTER
from stiefel.solvers.problem import LEAST_COSINE as LEAST_COSINE
from stiefel.solvers.secant_search import GROWTH as GROWTH
from stiefel.solvers.secant_search import GROWTH_OF_GUESS as GROWTH_OF_GUESS
from stiefel.solvers.secant_search import MAX_TRIALS as MAX_TRIALS
from stiefel.solvers.secant_search import SHRINKAGE as SHRINKAGE

__all__ = [
    "PLAUSIBLE_NOISE",
    "check_place",
    "load_compiled",
    "lower_span_gradient",
    "raise_rotation",
]
