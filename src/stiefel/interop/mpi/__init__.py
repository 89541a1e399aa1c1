"""Rows of X on many ranks: the only place that knows MPI.

Nothing here is imported unless ``comm=`` is given or `stiefel.mpi` is used.
"""
