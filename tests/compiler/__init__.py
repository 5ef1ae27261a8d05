"""Tests of kernels.compiler: translation of native source, and the cache of machine code."""
