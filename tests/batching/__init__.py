"""Tests of tape.batching: vmap."""
