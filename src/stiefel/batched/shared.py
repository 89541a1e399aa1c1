"""What the branch-free solver shares with the rest of the library: all its imports of internals.

The formulas of the geometry are those of `stiefel.geometry`, unchanged: they act on stacks and
sum through the kernels that they are given, and the kernels of this package sum for each problem.
Constants of the search, of the learned metric and of the memory are those of `stiefel.solvers`.
"""

from stiefel.geometry import cayley as cayley
