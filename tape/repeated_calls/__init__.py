"""What Python enters into the table of calls, which native code repeats: operators, functions, joins."""
