"""Linear algebra: contractions, decompositions, solves, determinants, norms, interpolation."""
