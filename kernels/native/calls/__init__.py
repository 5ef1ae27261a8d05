"""Calls that have been seen, repeated by native code: found in the table, computed, recorded or written."""
