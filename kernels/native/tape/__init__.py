"""The tape: a block of words, with methods to record, read, drop and check."""
