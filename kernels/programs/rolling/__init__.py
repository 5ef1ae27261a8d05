"""Recorded programs without their views, and without what loops hand on; what repeats in them as loops."""
