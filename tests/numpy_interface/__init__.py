"""Tests of tape.numpy_interface: NumPy's functions, methods and standard on tensors."""
