"""Tensors and what they live on: tapes, modes, families of views, operands, trees of tensors, recorders."""
