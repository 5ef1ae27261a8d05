"""Programs: made by recording a function, replayed natively, interpreted where that is asked."""
