"""The only place that knows an array library, autodiff or MPI by name."""
