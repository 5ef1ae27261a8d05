"""What becomes a tensor, and what a tensor becomes: creation, types, NumPy, Python, files, other libraries."""
