"""``np.f(tensor)``: NumPy's protocols, and its functions that PyTorch lacks."""
