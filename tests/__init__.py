"""Tests, in rooms named after those of kernels and tape; support has their tools, conventions PyTorch's answers."""
