"""Products, decompositions, solves and determinants of matrices."""
