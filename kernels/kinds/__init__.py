"""What an operation is, a file for each kind of record: its form, its tasks in a program, its repeated call."""
