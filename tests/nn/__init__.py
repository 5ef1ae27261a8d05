"""Tests of tape.nn: modules, layers, losses, programs beside PyTorch."""
