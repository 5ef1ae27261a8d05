"""Tests of kernels.programs.rolling: what repeats in a program as loops."""
