"""Worked uses of the library, each a thin module over it; import the one you need.

scf                 Hartree–Fock and Kohn–Sham energies of PySCF objects
localization        Foster–Boys, Pipek–Mezey, intrinsic bond and Edmiston–Ruedenberg orbitals
wannier             maximally localised Wannier functions of bands
compressed_modes    localised solutions of a Schrödinger problem
synchronization     rotations from their measured ratios, with a certificate of optimality
staircase           the same with a relaxation of rising rank, and its bound
g2o                 pose graphs from files
maxcut              the max-cut relaxation, with its dual bound and a rounded cut
data                scikit-learn-shaped estimators
"""
