"""Checks of derivatives: by finite differences and Taylor remainders, of contracts, of memory layouts."""
