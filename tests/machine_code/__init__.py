"""Tests of kernels.machine_code: compiled programs as Python, C and Numba call them."""
