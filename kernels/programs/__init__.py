"""Programs: recorded steps, lowered to rows of words, replayed by ``machine``."""
