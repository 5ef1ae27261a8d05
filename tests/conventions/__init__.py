"""What is held against PyTorch: the same programs, the same answers; and what PyTorch gave, stored."""
