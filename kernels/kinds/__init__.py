"""Kinds of operations: the form of a record for given specs, its kernels, what it saves."""
