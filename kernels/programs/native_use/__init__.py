"""Compiled programs as native code calls them: Numba's, C's, SciPy's."""
