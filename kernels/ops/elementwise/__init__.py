"""The tables of operations element by element."""
