"""The figures and tables of the paper as experiments."""
