"""Tests of kernels.kinds and tape.kinds: what records of one kind have in common."""
