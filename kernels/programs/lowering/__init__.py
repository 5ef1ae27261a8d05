"""From steps to rows: forward and reverse, copies before overwrites, the plan of memory."""
