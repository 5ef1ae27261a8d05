"""Tests of kernels.language: translation of native source, elementary functions, and the cache of machine code."""
