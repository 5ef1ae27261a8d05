"""A program as data: nodes and steps as words, noted while they are recorded; pickles."""
