"""Operations by topic under PyTorch's and NumPy's names."""
