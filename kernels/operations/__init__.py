"""The tables of operations, one record each, by topic."""
