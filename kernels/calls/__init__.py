"""Calls in native code: repeated calls of operations, and the objects of tensors."""
