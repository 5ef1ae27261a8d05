"""The parts of a sweep on tensors: rules, saved tensors, gradient buffers, custom functions."""
