"""The project itself: the order of its rooms, its pages, its packaging, its imports."""
