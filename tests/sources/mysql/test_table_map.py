"""Rule: what a TABLE_MAP says of its columns is read as the server that wrote it meant it, or not at all."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.mysql.recorded_log import MYSQL, bodies

from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql.events import EventType
from headrace.sources.mysql.table_map import (
    KeyPart,
    MapColumn,
    TableMap,
    description,
    read_table_map,
    table_id,
    table_named,
)

RECORDED = bodies(EventType.TABLE_MAP)
_ENUM, _SET = 0xF7 | 1 << 8, 0xF8 | 1 << 8


def packed(*parts):
    together = b"".join(parts)
    return bytes([len(together)]) + together


def written(codes, metas, *fields, database=b"shop", name=b"t", nulls=None):
    """A description as a server writes it."""
    head = packed(database) + b"\0" + packed(name) + b"\0" + packed(bytes(codes)) + packed(metas)
    body = head + (bytes((len(codes) + 7) // 8) if nulls is None else nulls)
    return body + b"".join(bytes([kind]) + packed(value) for kind, value in fields)


def test_a_table_of_mariadb_with_all_that_its_metadata_says():
    assert read_table_map(description(RECORDED[0]), mariadb=True) == TableMap(
        "shop",
        "item",
        (
            MapColumn(3, 0, False, "id", unsigned=True),
            MapColumn(15, 10, False, "code", collation=8),
            MapColumn(254, _ENUM, True, "mood", collation=8, labels=(b"a", b"\xe4")),
            MapColumn(254, _SET, True, "tags", collation=8, labels=(b"x", b"y")),
            MapColumn(255, 4, True, "shape", collation=63, geometry=0),
            MapColumn(255, 4, True, "place", collation=63, geometry=1),
            MapColumn(254, 0x10FE, True, "token", collation=63),
            MapColumn(3, 0, True, "hidden", unsigned=False),
            MapColumn(246, 10 | 2 << 8, True, "price", unsigned=False),
            MapColumn(16, 3, True, "bits"),
            MapColumn(13, 0, True, "made", unsigned=True),
        ),
        (KeyPart(1, prefix=3), KeyPart(0)),
    )


def test_a_table_of_mysql_with_all_that_its_metadata_says():
    assert read_table_map(description(bodies(EventType.TABLE_MAP, MYSQL)[0]), mariadb=False) == TableMap(
        "shop",
        "item",
        (
            MapColumn(8, 0, False, "id", unsigned=True, visible=True),
            MapColumn(245, 4, True, "doc", visible=True),
            MapColumn(242, 4, True, "v", collation=63, dimension=3, visible=True),
            MapColumn(15, 40, True, "name", collation=255, visible=False),
            MapColumn(255, 4, True, "shape", geometry=0, visible=True),
            MapColumn(252, 2, True, "word", collation=8, visible=True),
        ),
        (KeyPart(0),),
    )


def test_a_description_is_the_same_under_another_number():
    first, second = RECORDED[0], b"\x99" + RECORDED[0][1:]
    assert (table_id(first) != table_id(second)) and description(first) == description(second)


def test_the_name_is_read_where_the_rest_is_not_known():
    assert table_named(written([77], b"")) == ("shop", "t")
    with pytest.raises(CaptureError, match=r"Column 1 of table 'shop.t' is of type 77"):
        read_table_map(written([77], b""), mariadb=False)


def test_a_table_of_mysql_with_what_mysql_alone_says():
    said = read_table_map(
        written(
            [8, 242, 245, 255, 252],
            b"\x04\x04\x04\x02",
            (1, b"\x80"),
            (3, b"\x3f\xfc\xff\x00"),
            (4, b"\x01a\x01b\x01c\x01d\x01e"),
            (7, b"\x07"),
            (8, b"\x00"),
            (12, b"\xb8"),
            (13, b"\xfc\x00\x08"),
            nulls=b"\x1e",
        ),
        mariadb=False,
    )
    assert said.columns == (
        MapColumn(8, 0, False, "a", unsigned=True, visible=True),
        MapColumn(242, 4, True, "b", collation=63, dimension=2048, visible=False),
        MapColumn(245, 4, True, "c", visible=True),
        MapColumn(255, 4, True, "d", geometry=7, visible=True),
        MapColumn(252, 2, True, "e", collation=255, visible=True),
    )
    assert said.primary_key == (KeyPart(0),) and said.named


@pytest.mark.parametrize(
    ("mariadb", "codes", "metas", "value", "collations"),
    [
        # A default, and pairs of a place among the character columns and a collation.
        (False, [15, 3, 252, 15], b"\x0a\0\x02\x0a\0", b"\x2d\x01\x08", [45, None, 8, 45]),
        (False, [15, 255, 252], b"\x0a\0\x04\x02", b"\x2d\x01\x08", [45, None, 8]),
        (True, [15, 255, 252], b"\x0a\0\x04\x02", b"\x2d\x01\x3f", [45, 63, 45]),
        (True, [140, 141, 254], b"\x02\x0a\0\xf7\x01", b"\x2d", [45, 45, None]),
        (False, [242, 245], b"\x04\x04", b"\x3f", [63, None]),
    ],
)
def test_a_default_collation_is_that_of_the_columns_that_each_server_counts(mariadb, codes, metas, value, collations):
    said = read_table_map(written(codes, metas, (2, value)), mariadb=mariadb)
    assert [column.collation for column in said.columns] == collations


def test_signs_are_those_of_numbers_alone_and_the_highest_bit_is_the_first():
    codes = [1, 16, 2, 12, 9, 3, 8, 4, 5, 246, 13, 1]
    said = read_table_map(written(codes, b"\x01\x00\x04\x08\x0a\x02", (1, b"\xa5\x40")), mariadb=False)
    assert [column.unsigned for column in said.columns] == [
        *(True, None, False, None, True),
        *(False, False, True, False, True, False, True),
    ]


def test_labels_have_a_default_collation_too():
    codes, metas = [254, 254, 254], b"\xf7\x01\xf8\x01\xfe\x0a"
    said = read_table_map(
        written(codes, metas, (10, b"\x2d\x01\x08"), (3, b"\x3f"), (6, b"\x02\x01a\x01b"), (5, b"\x01\x01c")),
        mariadb=False,
    )
    assert [(c.real, c.collation, c.labels) for c in said.columns] == [
        (247, 45, (b"a", b"b")),
        (248, 8, (b"c",)),
        (254, 63, None),
    ]


def test_a_table_without_metadata_has_no_names():
    said = read_table_map(written([3, 15], b"\x0a\0"), mariadb=True)
    assert said.columns == (MapColumn(3, 0, False), MapColumn(15, 10, False)) and not said.named


def test_an_unknown_field_is_left_out():
    assert read_table_map(written([3], b"", (99, b"anything"), (4, b"\x01a")), mariadb=False).named


@pytest.mark.parametrize(
    "described",
    [
        written([3], b"\x00"),
        written([15], b"\x0a"),
        written([3], b"", (1, b"")),
        written([3], b"", (1, b"\x80\x80")),
        written([3], b"", (4, b"\x02a")),
        written([3], b"", (4, b"\x01\xff")),
        written([3], b"", (8, b"\x01")),
        written([15], b"\x0a\0", (3, b"")),
        written([15], b"\x0a\0", (3, b"\x08\x08")),
        written([15], b"\x0a\0", (2, b"\x08\x01\x08")),
        written([254], b"\xf7\x01", (6, b"\xfb")),
        written([3], b"")[:-1],
        written([3], b"") + b"\x04",
    ],
)
def test_a_description_that_contradicts_itself_stops(described):
    with pytest.raises(FormatError):
        read_table_map(described, mariadb=False)


@given(st.integers(0, 10**6), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 255))
def test_any_damage_gives_a_table_or_an_error_of_ours(number, cut, position, letter):
    found = bytearray(description(RECORDED[number % len(RECORDED)]))
    found[position % len(found)] = letter
    with suppress(FormatError, CaptureError):
        read_table_map(bytes(found[: max(1, cut)]), mariadb=bool(number % 2))
