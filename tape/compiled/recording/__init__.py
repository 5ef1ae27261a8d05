"""One call of a compiled function as it is recorded: operations, guards, loops, calls of Python."""
