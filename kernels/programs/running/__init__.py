"""The native loop over a program's rows, and how arrays get in and out."""
