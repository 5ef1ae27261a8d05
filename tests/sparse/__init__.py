"""Tests of tape.sparse: matrices, patterns, colourings, sparse derivatives."""
