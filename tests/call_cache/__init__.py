"""Tests of kernels.call_cache and tape.recording: calls that native code repeats."""
