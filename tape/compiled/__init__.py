"""``tape.compile``: functions whose calls are recorded, guarded and replayed natively."""
