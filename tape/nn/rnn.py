"""PyTorch's ``nn.utils.rnn``: sequences of several lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape import functions as f
from tape.recording import views

__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:  # fmt: skip
    """Return sequences (length, *) as one tensor (longest, n, *), or (n, longest, *): the shorter ones are filled.

    >>> tape.nn.utils.rnn.pad_sequence([tape.tensor([1, 2]), tape.tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if padding_side not in {"left", "right"}:
        raise ValueError(f"pad_sequence: padding_side should be left or right, got {padding_side!r}")
    longest = max(len(x) for x in sequences)
    padded = []
    for x in sequences:
        missing = [longest - len(x), 0] if padding_side == "left" else [0, longest - len(x)]
        padded.append(f.pad(x, [0] * (2 * x.ndim - 2) + missing, value=padding_value))
    return views.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Return the sequences that ``pad_sequence`` made one tensor of, by their lengths."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(rows, lengths, strict=True)]
