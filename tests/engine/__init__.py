"""Tests of tape.engine: backward by each way, hooks, functions, forward mode."""
