"""Tests of kernels.programs and tape.programs: recorded once, replayed natively."""
