"""Tests of tape.recording: NumPy, files, pickles and DLPack."""
