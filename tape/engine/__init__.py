"""The engine: backward and grad, short ways for common graphs, double backward, forward mode."""
