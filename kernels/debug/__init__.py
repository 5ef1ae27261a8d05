"""``TAPE_DEBUG=1``: tapes are checked before they are swept, against pictures of what they were."""
