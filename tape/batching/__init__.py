"""``vmap``: one example is recorded, and runs for a batch."""
