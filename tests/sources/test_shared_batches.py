"""Rule: two structures of a table share a batch where columns of one name have values of one kind."""

from __future__ import annotations

import pytest

from headrace.changes import LogicalType
from headrace.sources.tables.rewrites import can_share


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ({"v": "string"}, {"v": "json"}, True),
        ({"v": "int32"}, {"v": "decimal(9,2)"}, True),
        ({"v": "uint64"}, {"v": "float64"}, True),
        ({"v": "string"}, {"v": "bytes"}, False),
        ({"v": "string"}, {"v": "int32"}, False),
        ({"v": "bytes"}, {"v": "uuid"}, False),
        ({"v": "timestamp(6)"}, {"v": "timestamp(3)"}, True),
        ({"v": "string"}, {"w": "bytes"}, True),
        ({}, {"w": "bytes"}, True),
    ],
)
def test_which_structures_share_a_batch(one: dict[str, str], other: dict[str, str], share: bool) -> None:
    first, second = ({name: LogicalType.parse(kind) for name, kind in types.items()} for types in (one, other))
    assert can_share(first, second) is share
    assert can_share(second, first) is share
