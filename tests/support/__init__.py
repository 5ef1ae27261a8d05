"""Tools of the tests: cases made from records, random programs, comparisons with PyTorch, pages."""
