"""Benchmarks: `python -m pytest bench` runs their quick part, `-m "not long"` all of them.

Importing this package limits every library to one thread; libraries read these variables when
they are imported, so this file comes before any of them.
"""

import os

ONE_THREAD = dict.fromkeys(
    (
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)

os.environ.update(ONE_THREAD)
