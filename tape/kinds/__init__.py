"""What each kind of record does on tensors: its pullback in a recorded backward, and one call for a whole batch."""
