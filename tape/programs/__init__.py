"""Programs that users hold: recorded, run, drawn, saved."""
