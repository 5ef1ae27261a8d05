"""What runs from a shell or writes files: stubs, the table of operations, the tour."""
