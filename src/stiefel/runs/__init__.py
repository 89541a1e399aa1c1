"""What happens around a solver: the loop, the books, stopping, history, files, the result."""
