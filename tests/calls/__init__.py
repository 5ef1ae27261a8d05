"""Tests of kernels.calls and tape.recording: calls that native code repeats, indexing among them."""
