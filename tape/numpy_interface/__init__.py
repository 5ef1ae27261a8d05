"""NumPy's and Python's faces: ufuncs, functions, methods, creation, conversion."""
