"""Operations made of several others, questions about tensors, samples."""
