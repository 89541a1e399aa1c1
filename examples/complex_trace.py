"""A complex matrix

This recipe finds the lowest eigenvectors of a Hermitian H by minimising Re tr ZᴴHZ. NumPy's
`eigvalsh` is the check.
"""

import numpy as np

import stiefel

rng = np.random.default_rng(0)
H = rng.standard_normal((40, 40)) + 1j * rng.standard_normal((40, 40))
H = H + H.conj().T

Z0 = stiefel.random_point(40, 3, seed=0, dtype=complex)
result = stiefel.minimize(lambda Z: (np.vdot(Z, H @ Z).real, 2 * H @ Z), Z0)

print(result)
assert result.success
assert np.isclose(result.fun, np.linalg.eigvalsh(H)[:3].sum())
