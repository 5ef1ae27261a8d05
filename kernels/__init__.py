"""Records, kernels and native sweeps of tape-autograd: knows arrays and tapes, never tensors."""

DISTRIBUTION = "tape-autograd"
"""Another distribution installs a package named kernels too; ``tape`` checks this name to know that it got ours."""
PACKAGES = "tape", __name__.partition(".")[0]
"""What the names of our modules begin with: a wheel holds this package as ``tape._kernels``, for the same reason."""
__version__ = "0.1.0"
