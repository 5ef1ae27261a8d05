"""Statements over iteration spaces, and the loops that they share."""
