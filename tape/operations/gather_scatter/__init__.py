"""Elements picked, replaced and added to by arrays of places."""
