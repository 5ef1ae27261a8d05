"""Backward: sweeps over tapes, graph nodes, hooks, saved tensors, custom functions, forward mode."""
