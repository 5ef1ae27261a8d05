"""Tensors and what surrounds them: tapes, modes, hooks, views, pytrees, printing."""
