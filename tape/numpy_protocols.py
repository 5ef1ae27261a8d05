"""np.f(tensor): NumPy's functions find the records, with NumPy's meaning; one without a record raises TypeError."""

from __future__ import annotations
