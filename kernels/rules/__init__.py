"""Rules of records: names and symbols, printed loops, kernels of rows."""
