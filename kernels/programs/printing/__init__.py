"""A scalar program and its reverse as lines of native source."""
