"""Compiled programs as Python calls them: machine code between Python's objects."""
