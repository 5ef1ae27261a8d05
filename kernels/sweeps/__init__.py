"""Sweeps: reverse and forward in native code, the reference in Python, checks of the debug mode."""
