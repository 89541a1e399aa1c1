"""Our methods beside those of other libraries: the same problems, starts, counts and norm."""
