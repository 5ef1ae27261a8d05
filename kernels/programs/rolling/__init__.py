"""Recorded programs without their views, and what repeats in them as loops."""
