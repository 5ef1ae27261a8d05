"""Kernels printed from rules: a loop for a rule, a dtype and a pattern of strides; matrix products."""
