"""PyTorch's operations; here those that others are made of: operators, reductions, products, writes, ufuncs."""
