"""Tests of kernels.vectormath: elementary functions that vectorise."""
