"""The compiler of programs: repeats become loops, elementwise runs fuse, one native function for value and gradient."""
