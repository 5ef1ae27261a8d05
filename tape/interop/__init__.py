"""Functions of other frameworks as operations of tape, and functions of tape as theirs.

Each of its modules, ``torch``, ``jax`` and ``pytensor``, imports its framework.
"""
