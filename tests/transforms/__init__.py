"""Tests of tape.transforms and tape.func: gradients as functions."""
