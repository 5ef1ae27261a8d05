"""Tests of kernels.codegen: kernels printed from rules, and those written for rows."""
