"""What a record is: its kinds, how a rule is read as an expression, ufuncs that dispatch."""
