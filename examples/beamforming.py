"""Beamforming with phases only

The elements of this antenna array can shift phases but not amplitudes: the weights are complex
numbers of modulus one, `ComplexCircle()`. The beam should be strong in one direction and weak in
two others. The textbook answer, steering (the conjugate phases of the wanted direction), ignores
the interferers.
"""

import matplotlib.pyplot as plt
import numpy as np

import stiefel

antennas = np.arange(24)
response = lambda degrees: np.exp(1j * np.pi * np.sin(np.radians(degrees)) * antennas)
wanted, unwanted = response(15.0), [response(-9.0), response(21.5)]
R = -np.outer(wanted, wanted.conj()) + 100 * sum(np.outer(a, a.conj()) for a in unwanted)

result = stiefel.minimize(
    lambda z: (np.vdot(z, R @ z).real, 2 * R @ z), wanted, manifold=stiefel.ComplexCircle()
)
assert result.success

power = lambda z, a: 20 * np.log10(abs(np.vdot(a, z)) / antennas.size + 1e-12)
for name, z in (("steering", wanted), ("optimised", result.x)):
    print(f"{name:10} wanted {power(z, wanted):6.1f} dB, unwanted "
          + ", ".join(f"{power(z, a):6.1f} dB" for a in unwanted))  # fmt: skip
assert all(power(result.x, a) < -40 for a in unwanted)
assert power(result.x, wanted) > -1

degrees = np.linspace(-60, 60, 700)
fig, ax = plt.subplots(figsize=(5.4, 3), layout="constrained")
for z, label, colour in ((wanted, "steering", "0.6"), (result.x, "optimised", "C0")):
    ax.plot(degrees, [power(z, response(d)) for d in degrees], color=colour, label=label)
for d in (-9.0, 21.5):
    ax.axvline(d, color="C3", lw=0.8)
ax.set(ylim=(-60, 3), xlabel="direction (degrees)", ylabel="power (dB)", title="Beam")
ax.legend()
