"""``python -m stiefel.cli``: the same as the command ``stiefel``."""

from . import main

main()
