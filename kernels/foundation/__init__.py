"""What everything stands on: data classes, bounded tables, locks, specs of arrays, NumPy's loops."""
