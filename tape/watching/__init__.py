"""What a function reads while it is recorded: frames, loops, outside state."""
