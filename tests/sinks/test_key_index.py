"""An index of keys says where rows may be: typed, with nulls, whatever the file's types, and never by a hash alone."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.lake.key_index import Bounded, KeyIndex
from headrace.sinks.lake.keys import KeyForm

DECIMAL = pa.decimal128(12, 4)


SAME = [
    # Columns of the key, those that may be null, rows of a file, rows that are looked up, and which are of one key.
    ({"k": "bigint"}, (), {"k": pa.array([1, -(2**63)])}, {"k": pa.array([1], pa.int8())}, [(0, 0)]),
    (
        {"k": "int"},
        ("k",),
        {"k": pa.array([0, None], pa.int32())},
        {"k": pa.array([None, 0], pa.int32())},
        [(0, 1), (1, 0)],
    ),
    ({"k": "int"}, (), {"k": pa.array([0, None], pa.int32())}, {"k": pa.array([None, 0], pa.int32())}, [(0, 1)]),
    (
        {"k": "decimal(12,4)"},
        (),
        {"k": pa.array([Decimal("12.5000"), Decimal("-1")], DECIMAL)},
        {"k": pa.array([Decimal("12.50"), Decimal("-1")], pa.decimal128(5, 2))},
        [(0, 0), (1, 1)],
    ),
    ({"k": "string"}, (), {"k": pa.array(["", "a", "é"])}, {"k": pa.array(["é", "e"])}, [(2, 0)]),
    ({"k": "string"}, ("k",), {"k": pa.array(["", None])}, {"k": pa.array([None, ""])}, [(0, 1), (1, 0)]),
    (
        {"a": "string", "b": "string"},
        (),
        {"a": pa.array(["x", "xy"]), "b": pa.array(["yz", "z"])},
        {"a": pa.array(["xy", "x"]), "b": pa.array(["z", "z"])},
        [(1, 0)],
    ),
    (
        {"a": "string", "b": "int"},
        ("a", "b"),
        {"a": pa.array([None, "", None]), "b": pa.array([1, None, None], pa.int32())},
        {"a": pa.array(["", None, None]), "b": pa.array([None, None, 1], pa.int32())},
        [(0, 2), (1, 0), (2, 1)],
    ),
    ({"k": "binary"}, (), {"k": pa.array([b"\x00", b""])}, {"k": pa.array([b"", b"\x00\x00"])}, [(1, 0)]),
    ({"k": "boolean"}, (), {"k": pa.array([True, False])}, {"k": pa.array([False])}, [(1, 0)]),
    (
        {"k": "double"},
        (),
        {"k": pa.array([0.0, float("nan")])},
        {"k": pa.array([-0.0, float("nan")])},
        [(0, 0), (1, 1)],
    ),
    ({"k": "double"}, (), {"k": pa.array([0.5])}, {"k": pa.array([0.5], pa.float32())}, [(0, 0)]),
    (
        {"k": "timestamp"},
        (),
        {"k": pa.array([1], pa.int64()).cast(pa.timestamp("us", "UTC"))},
        {"k": pa.array([1_000], pa.int64()).cast(pa.timestamp("ns", "UTC"))},
        [(0, 0)],
    ),
    (
        {"k": "date", "n": "date"},
        ("n",),
        {"k": pa.array([dt.date(1, 1, 1)]), "n": pa.array([None], pa.date32())},
        None,
        [(0, 0)],
    ),
]


@pytest.mark.parametrize(("columns", "nullable", "one", "other", "expected"), SAME)
@pytest.mark.parametrize("bits", [64, 8])
def test_keys_are_equal_where_spark_finds_them_equal(
    columns: dict[str, str], nullable: tuple[str, ...], one: Any, other: Any, expected: list[tuple[int, int]], bits: int
) -> None:
    form = KeyForm(columns, nullable, bits=bits)
    index = KeyIndex()
    index.add("file", form.keys(pa.table(one)))
    asked = form.keys(pa.table(one if other is None else other))
    hits = index.look_up(asked)
    assert sorted(zip(hits.rows.tolist(), asked.rows[hits.keys].tolist(), strict=True)) == expected


@pytest.mark.parametrize("kind", ["array<int>", "variant"])
def test_a_key_that_can_not_be_compared_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=kind.partition("<")[0]):
        KeyForm({"k": kind}, ())


@given(st.data())
@pytest.mark.parametrize("kind", ["bigint", "string"])
def test_an_index_finds_all_rows_of_all_files_that_it_has(kind: str, data: st.DataObject) -> None:
    """Hashes of eight bits make every other key share one; parts are joined and files renumbered all the time."""
    form = KeyForm({"k": kind}, (), bits=8)
    index, model = KeyIndex(most_dropped=2), {}
    made = random.Random(data.draw(st.integers(0, 1_000)))
    for number in range(60):
        values = [made.randrange(300) for _ in range(made.randrange(8))]
        model[f"f{number}"] = values
        index.add(f"f{number}", form.keys(pa.table({"k": column(kind, values)})))
        if made.random() < 0.3:
            gone = made.sample(sorted(model), min(len(model), made.randrange(6)))
            index.drop(gone)
            for path in gone:
                del model[path]
        wanted = made.sample(range(300), 20)
        hits = index.look_up(form.keys(pa.table({"k": column(kind, wanted)})))
        found = [(wanted[k], hits.paths[f], r) for k, f, r in zip(hits.keys, hits.files, hits.rows, strict=True)]
        assert sorted(found) == sorted(
            (key, path, row) for path, values in model.items() for row, key in enumerate(values) if key in wanted
        )
        assert {*index.paths} == {*model}


def test_rows_of_a_dropped_file_stay_gone_however_often_files_are_renumbered() -> None:
    form, index = KeyForm({"k": "bigint"}, ()), KeyIndex(most_dropped=0)

    def add(path: str, *values: int) -> None:
        index.add(path, form.keys(pa.table({"k": column("bigint", list(values))})))

    for number in range(17):
        add(f"old{number}", number, 100 + number)
    # Fewer than half of the entries of one part are gone, so they stay in it.
    index.drop([f"old{number}" for number in range(8)])
    for turn in range(3):
        for number in range(12):
            add(f"young{turn}.{number}", 1_000)
        index.drop([f"young{turn}.{number}" for number in range(11)])
        wanted = form.keys(pa.table({"k": column("bigint", list(range(17)))}))
        hits = index.look_up(wanted)
        assert sorted((int(wanted.rows[k]), hits.paths[f]) for k, f in zip(hits.keys, hits.files, strict=True)) == [
            (number, f"old{number}") for number in range(8, 17)
        ]


def column(kind: str, values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64()) if kind == "bigint" else pa.array([f"key {value}" for value in values])


def test_memory_does_not_grow_with_files_that_are_gone() -> None:
    form, index = KeyForm({"k": "bigint"}, ()), KeyIndex()
    rows = pa.table({"k": pa.array(range(100), pa.int64())})
    for number in range(200):
        index.add(f"f{number}", form.keys(rows))
        index.drop([f"f{number - 1}"])
    assert index.size < 20 * 100 * 16


def test_the_names_of_files_that_are_gone_are_forgotten() -> None:
    form, index = KeyForm({"k": "bigint"}, ()), KeyIndex(most_dropped=50)
    rows = pa.table({"k": pa.array([1], pa.int64())})
    for number in range(500):
        index.add(f"f{number}", form.keys(rows))
        index.drop([f"f{number - 1}"])
        hits = index.look_up(form.keys(rows))
        assert [hits.paths[file] for file in hits.files] == [f"f{number}"]
        assert len(hits.paths) <= 54


def test_hits_are_told_by_file() -> None:
    form, index = KeyForm({"k": "bigint"}, ()), KeyIndex()
    index.add("a", form.keys(pa.table({"k": [1, 2, 1]})))
    index.add("b", form.keys(pa.table({"k": [2]})))
    found = index.look_up(form.keys(pa.table({"k": [2, 1]}))).by_file()
    assert {path: sorted(zip(*map(np.ndarray.tolist, of), strict=True)) for path, of in found.items()} == {
        "a": [(0, 1), (1, 0), (1, 2)],
        "b": [(0, 0)],
    }
    assert index.look_up(form.keys(pa.table({"k": [9]}))).by_file() == {}


class Sized:
    def __init__(self, size: int) -> None:
        self.size = size


def test_the_table_that_was_used_the_longest_ago_goes_first() -> None:
    kept: Bounded[Sized] = Bounded(10)
    for name in ("a", "b"):
        assert kept.put(name, Sized(4))
    assert kept.get("a") is not None
    assert kept.put("c", Sized(4))
    assert kept.get("b") is None
    assert kept.sizes() == {"a": 4, "c": 4}
    assert not kept.put("too large", Sized(11))
    # Nothing had to go for it.
    assert kept.sizes() == {"a": 4, "c": 4}
    assert not kept.is_left_out("b")


def test_a_table_that_was_too_large_is_tried_again_now_and_then() -> None:
    kept: Bounded[Sized] = Bounded(10)
    tried = []
    for batch in range(1000):
        if not kept.is_left_out("t"):
            tried.append(batch)
            kept.put("t", Sized(11)) if len(tried) < 4 else kept.refuse("t")
    assert tried == [0, 65, 194, 451, 964]
    while kept.is_left_out("t"):
        pass
    assert kept.put("t", Sized(10))
    assert not kept.is_left_out("t")
    # The next time it begins anew.
    kept.refuse("t")
    assert sum(kept.is_left_out("t") for _ in range(100)) == 64
