"""The words that exchange.py lays out and exchange_native.py reads."""

from __future__ import annotations

# The head: how many arguments and results; types by their address; functions of NumPy's by theirs; where the rows
# stand that run between, how many, and whether other threads may run Python meanwhile.
(
    X_ARGUMENTS, X_RESULTS, X_FLOAT, X_DOUBLE, X_FLOAT32, X_INT, X_ARRAY, X_NEW_COPY, X_COPY_INTO, X_NEW,
    X_ROWS, X_ROW_COUNT, X_RELEASES,
) = range(13)  # fmt: skip
X_FIRST = 13

# An entry of each argument, then of each result: its kind, where it stands, the array that shows it, dtype (of a
# result: its number), dimensions, where the shape stands; of an array how many words it has, -1 where NumPy is to copy
# it; of a gradient its elements, 0 of others, and the bytes of one.
XI_KIND, XI_PLACE, XI_VIEW, XI_DTYPE, XI_NDIM, XI_SHAPE, XI_WORDS, XI_GRADIENT, XI_ITEM = range(9)
X_ENTRY = 9

# Kinds: arrays alone; also a float or int for a double, a float or np.float32 for a single, an int for an int64.
XK_ARRAY, XK_DOUBLE, XK_SINGLE, XK_INTEGER = range(4)
