"""Arrays from outside: their specs, what stands at an address, NumPy's own loops, what sweeps take and give."""
