"""A program as data: nodes and steps as words, appended while a program is recorded; pickles."""
