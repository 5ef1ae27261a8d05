"""The kinds of records on tensors: how a recorded backward runs their pullbacks, and vmap their operations."""
