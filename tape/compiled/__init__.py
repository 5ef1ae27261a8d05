"""`compile`: keys and guards of calls, recordings, compiled programs and gradients."""
