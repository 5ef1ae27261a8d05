"""Tests of kernels.native: that native code does the work, its memory, leaves and slots."""
