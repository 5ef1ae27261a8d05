"""The ground of native code: memory by address, CPython's and NumPy's C API, the words both sides share."""
