"""``x[key]`` and ``x[key] = value`` by native code: parts, picks, writes."""
