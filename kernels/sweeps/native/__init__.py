"""The loops of the native sweeps: marks, the gradient table, pullbacks, leaves."""
