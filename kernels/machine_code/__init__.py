"""Compiled programs as they are called: by Python, native code, C and Numba."""
