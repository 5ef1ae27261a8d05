"""Tests of tape.tensors: structures, modes, views whose base changes."""
