"""What a login may do in a database, in Kafka or in a folder, found out before a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MissingPermission:
    """Something that the login may not do, or that is not set up for it.

    Args:
        sentence: what is missing, and what it is needed for.
        remedy: the statement or command with which an administrator grants it.
        required: whether a run stops without it; if not, some information or an optional feature is missing.
    """

    sentence: str
    remedy: str
    required: bool = True

    @classmethod
    def of(
        cls, names: Sequence[str], where: str, purpose: str, remedy: str, *, required: bool = True
    ) -> MissingPermission:
        """Permissions that the login lacks.

        Args:
            names: what the system calls them, such as `SELECT`.
            where: the object (`on dbo.orders`); empty where there is none.
            purpose: what they are needed for.
            remedy: as above.
            required: as above.
        """
        lacking = f"the permission{'' if len(names) == 1 else 's'} {', '.join(names)}"
        return cls(f"The login lacks {lacking}{where and f' {where}'} ({purpose}).", remedy, required)


@dataclass(frozen=True)
class Permissions:
    """What a login may do at a target.

    Args:
        summary: what was looked at, as one sentence that is true if nothing is missing.
        missing: what is missing.
        known: whether the target could be asked at all; if not, `summary` says why.
    """

    summary: str
    missing: tuple[MissingPermission, ...] = ()
    known: bool = True
