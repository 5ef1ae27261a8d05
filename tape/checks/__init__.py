"""Derivatives held against another truth: finite differences, Taylor remainders, contracts, layouts."""
