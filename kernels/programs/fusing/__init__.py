"""Statements over iteration spaces, the loops that they share, and what these do element by element."""
