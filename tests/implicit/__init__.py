"""Implicit functions, integrals that choose their parts, and SciPy's solvers, which refuse tensors."""
