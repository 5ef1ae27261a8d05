"""Tests of tape.tools, the examples and the command line."""
