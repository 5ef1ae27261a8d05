"""Run and record: an operation is computed, written to the tape, and told to the table of calls."""
