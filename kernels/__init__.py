"""Records, kernels and native sweeps of tape-autograd: knows arrays and tapes, never tensors."""

DISTRIBUTION = "tape-autograd"
"""Another distribution installs a package named kernels too; ``tape`` checks this name to know that it got ours."""
