"""Blocks of memory used again, and guarded ones for the debug mode."""
