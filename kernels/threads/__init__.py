"""Threads that run parts of the loops of compiled programs."""
