"""What a sweep in tensors is made of: rules, saved tensors, gradient tensors, custom functions."""
