"""Run and record: an operation is computed, appended to the tape, and entered into native code's table of calls."""
