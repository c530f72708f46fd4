"""Which structures of a table one batch may have."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.changes import LogicalType


def can_share(one: Mapping[str, LogicalType], other: Mapping[str, LogicalType]) -> bool:
    """Whether rows of two structures can be in one batch: columns of one name have values of one kind.

    Args:
        one: the types of the columns.
        other: those of another structure of the table.
    """
    return all(_kind(one.get(name, logical)) == _kind(logical) for name, logical in other.items())


def _kind(logical: LogicalType) -> str:
    if logical.kind in ("string", "json"):
        return "text"
    return "number" if logical.kind.startswith(("int", "uint", "float", "decimal")) else logical.kind
