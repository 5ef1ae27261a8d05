"""Recorded programs: steps, rolled loops, lowering to rows of words, replay."""
