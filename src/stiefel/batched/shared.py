"""What the branch-free solver shares with the rest of the library: all its imports of internals.

The formulas of the geometry are those of `stiefel.geometry`, unchanged: they act on stacks and
sum through the kernels that they are given, and the kernels of this package sum for each problem.
Constants of the search, of the learned metric and of the memory are those of `stiefel.solvers`.
"""

from stiefel.geometry import Euclidean, Grassmann, SpecialOrthogonal, Sphere, Stiefel
from stiefel.geometry import cayley as cayley
from stiefel.arguments import place as check_place
from stiefel.geometry.feasibility import feasible
from stiefel.geometry.frame import Frame, displacement, velocity_of
from stiefel.geometry.generalized import weighted
from stiefel.geometry.grassmann import INVARIANCE_TOLERANCE, _vertical_part
from stiefel.geometry.grassmann import _gradient as lower_span_gradient
from stiefel.geometry.kernels import Kernels
from stiefel.geometry.metric import _rotation as raise_rotation
from stiefel.geometry.metric import mean_metric, raise_columns, spread, squared_change
from stiefel.geometry.secant import Curvature, Secant, secant, squares
from stiefel.geometry.stiefel import lower_gradient
from stiefel.interop.adapters import check_gradient
from stiefel.interop.arrays import describe, is_array, kernels_for, library, own_copy
from stiefel.interop.blas_threads import threads_for
from stiefel.interop.numpy_kernels import NumpyKernels
from stiefel.interop.trees import Tree
from stiefel.minimize import minimize
from stiefel.solvers import METHODS
from stiefel.solvers.driver import MAX_RESTORATIONS, PATIENCE
from stiefel.solvers.lbfgs import LEAST_COSINE
from stiefel.solvers.ledger import IMPROVEMENT, WINDOW
from stiefel.solvers.line_search import MARGIN
from stiefel.solvers.metric import DWARFED, INVARIANCE, LearnedMetric
from stiefel.solvers.problem import LOST_BITS, PLAUSIBLE_NOISE, ROUNDING
from stiefel.solvers.result import Result, Status
from stiefel.solvers.secant_search import DWARFED as DWARFED_GAP
from stiefel.solvers.secant_search import GROWTH, MAX_TRIALS, SHORTER
