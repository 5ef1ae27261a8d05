"""Large loops of a printed program, cut into parts that threads may run."""
