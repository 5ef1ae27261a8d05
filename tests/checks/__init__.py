"""Tests of tape.checks and tape.testing: what checks gradients, and measures."""
