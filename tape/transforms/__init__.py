"""Functions of functions: value_and_grad, func, vmap."""
