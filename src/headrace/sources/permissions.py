"""What a login may not do that a source needs or would use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MissingRight:
    """A right that the login lacks.

    Args:
        right: what it lacks, with the object (`the right SELECT on dbo.orders`).
        purpose: what the source needs it for.
        grant: the statement that gives it, for whoever may.
        required: whether nothing runs without it; else only something is not seen.
    """

    right: str
    purpose: str
    grant: str
    required: bool = True
