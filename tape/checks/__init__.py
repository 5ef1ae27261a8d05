"""Checks of gradients: differences, Taylor tests, first non-finite values, layouts."""
