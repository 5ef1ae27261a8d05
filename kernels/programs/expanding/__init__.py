"""Fused statements as a scalar program: element by element, what was computed stays in registers."""
