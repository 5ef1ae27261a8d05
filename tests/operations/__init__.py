"""Tests of tape.operations: values, gradients and errors of public functions."""
