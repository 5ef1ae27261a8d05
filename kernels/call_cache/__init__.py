"""What Python enters into the table of calls that native code repeats."""
