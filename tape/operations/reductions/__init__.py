"""Reductions and what goes along a dim: sums, moments, scans, sorts, quantiles, softmax."""
