"""``x[key]`` and ``x[key] = value`` in native code: basic indexing, advanced indexing, writes."""
