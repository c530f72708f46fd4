"""What a pipeline's login may do at a target, found out before a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lack:
    """Something that is missing at a target.

    Args:
        sentence: what is missing, and what for.
        remedy: the statement or command that gives it, for whoever may.
        required: whether a batch would stop without it; else only something can't be done that may never be asked.
    """

    sentence: str
    remedy: str
    required: bool = True


@dataclass(frozen=True)
class Rights:
    """What was found out.

    Args:
        said: what was looked at, as one sentence that is true where nothing is missing.
        lacks: what is missing.
        known: whether the target could be asked at all; `said` tells why it could not.
    """

    said: str
    lacks: tuple[Lack, ...] = ()
    known: bool = True
