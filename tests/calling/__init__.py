"""Tests of kernels.programs.calling: compiled programs as Python calls them."""
