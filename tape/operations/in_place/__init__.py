"""The methods that write to a tensor, and gradients that are added to in place."""
