"""What Python lacks: locks that survive forks, light data classes, tables that forget, exact keys, intervals."""
