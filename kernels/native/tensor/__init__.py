"""The native type of tensors, its leaves, ``.grad``, and deallocation."""
