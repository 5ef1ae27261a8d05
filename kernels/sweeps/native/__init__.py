"""The loops of the native sweeps: marks, the table of gradients, pullbacks, leaves."""
