"""One problem, every method

This recipe shows what each method needs, in the same units: iterations, values, gradients and
products with the Hessian.
"""

import stiefel
from stiefel.objectives import Brockett

objective = Brockett.table(60, 3)  # eigenvectors of diag(j²/n), with its Hessian product
start = stiefel.random_point(60, 3, seed=0)

print(
    f"{'method':<14}{'iterations':>11}{'values':>8}{'gradients':>11}{'products':>10}{'error':>10}"
)
for method in ("accelerated", "lbfgs", "cg", "trust-region"):
    result = stiefel.minimize(objective, start, method=method, rtol=1e-9)
    error = result.fun - objective.minimum
    counts = f"{result.nit:>11}{result.nfev:>8}{result.njev:>11}{result.nhev:>10}"
    print(f"{method:<14}{counts}{error:>10.0e}")
    assert result.success
