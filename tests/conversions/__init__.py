"""Tests of tape.conversions: NumPy, files, pickles and DLPack."""
