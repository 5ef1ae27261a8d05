"""What of a scalar program has gradients, what is kept for them, and where all of it stands in memory."""
