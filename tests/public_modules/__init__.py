"""Public modules that stand alone, and the names and parameters of all public functions."""
