"""What the paper prints: the numbers that ours are put beside."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A row of Table 1 or 2: means over ten starts."""

    iterations: float
    function_evaluations: float
    gradient_evaluations: float
    seconds: float  # on the author's machine


TABLES: dict[tuple[int, int], dict[str, Row]] = {
    (1000, 10): {
        "function-restart": Row(17266.2, 43513.4, 17267.2, 17.8),
        "lbfgs": Row(31027.4, 32528.9, 31028.4, 26.3),  # ROPTLIB's L-RBFGS
    },
    (2000, 20): {
        "function-restart": Row(28758.8, 93747.8, 28759.8, 64.5),
        "lbfgs": Row(84767.2, 89013.8, 84768.2, 169.4),
    },
}

LABELS = {
    "function-restart": "accelerated, function restart",
    "gradient-restart": "accelerated, gradient restart",
    "gradient-descent": "gradient descent",
    "lbfgs": "L-BFGS",
    "cg": "conjugate gradients",
}
