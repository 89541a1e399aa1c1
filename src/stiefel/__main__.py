"""``python -m stiefel``: the same as the command ``stiefel``."""

from .cli import main

if __name__ == "__main__":
    main()
