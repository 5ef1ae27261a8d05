"""What must not break anything: bad input, threads, interrupts, leaks, random programs."""
