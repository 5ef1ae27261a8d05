"""The native type of tensors, its leaves, ``.grad``, and the end of their lives."""
