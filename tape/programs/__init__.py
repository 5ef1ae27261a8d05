"""Programs: made by recording a function, replayed natively, or run on tensors where gradients or vmap ask for it."""
