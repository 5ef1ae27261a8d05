"""What the package stands on: dtypes, devices, sizes, printing, the user's lines, names that load late."""
