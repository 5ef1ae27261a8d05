"""Tests of kernels.rules: records, kernels printed from rules, and those written for rows."""
