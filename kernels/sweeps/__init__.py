"""Sweeps of a tape: reverse and forward, the native ones' memory, and the reference in plain Python."""
