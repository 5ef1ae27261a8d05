"""Native memory and objects: C API, pool of arrays, tape, tensors, threads."""
