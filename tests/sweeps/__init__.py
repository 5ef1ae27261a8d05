"""Tests of kernels.sweeps: shapes of graphs, and what the sweeps of each kind give."""
