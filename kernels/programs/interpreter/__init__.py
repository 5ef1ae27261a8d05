"""The interpreter of programs: machines that run rows of words, and what they are timed and kept by."""
