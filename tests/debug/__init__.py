"""Tests of kernels.debug: planted faults are told."""
