"""What one instruction of a tape is: its form and kernels, Python's part in it, what writes protect."""
