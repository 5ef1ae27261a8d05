"""The graph that users see and hooks hang on: nodes, edges, registration, runs."""
