"""Tests of kernels.instructions: saved values before writes, cotangents that are used again."""
