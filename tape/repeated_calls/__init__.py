"""What Python tells the table of calls, which native code repeats: operators, functions with arguments, joins."""
