"""Handwritten kernels for rows: small ones in one piece, extrema, sums of exponentials."""
