"""Tests of kernels.records and kernels.ops: every record, by cases made from it."""
