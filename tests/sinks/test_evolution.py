"""What becomes of a target's columns when the source's structure changes, behaviour by behaviour."""

from __future__ import annotations

import pytest

from headrace.apply.column_names import Step
from headrace.errors import SchemaError
from headrace.sinks.evolution import BEHAVIORS, Evolution, TargetColumn, evolution, holds_spark
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.iceberg.table import IcebergTable

HAVE = {"id": "int", "a": "string", "n": "int", "_p": "string"}
STOP = "stop"

CHANGES = {
    "nothing": {"id": "int", "a": "string", "n": "int"},
    "a new column": {"id": "int", "a": "string", "n": "int", "z": "date"},
    "a column less": {"id": "int", "n": "int"},
    "another name": {"id": "int", "b": "string", "n": "int"},
    "a known new name": {"id": "int", "b": "string", "n": "int"},
    "a known new name and a wider type": {"id": "int", "a": "string", "m": "bigint"},
    "a known new name of the key": {"nr": "int", "a": "string", "n": "int"},
    "a known drop and a new column": {"id": "int", "n": "int", "z": "date"},
    "a name that the target has": {"id": "int", "a": "string"},
    "a wider type": {"id": "int", "a": "string", "n": "bigint"},
    "a narrower type": {"id": "int", "a": "string", "n": "smallint"},
    "another type": {"id": "int", "a": "string", "n": "date"},
    "another type of the key": {"id": "date", "a": "string", "n": "int"},
}
ADD, WIDEN = {"add": ["z"]}, {"widen": ["n"]}
KNOWN = {
    "a known new name": (Step("rename", "a", "b"),),
    "a known new name and a wider type": (Step("rename", "N", "m"),),
    "a known new name of the key": (Step("rename", "id", "nr"),),
    "a known drop and a new column": (Step("drop", "a"),),
    "a name that the target has": (Step("rename", "n", "a"),),
}
RENAME = {"rename": [("a", "b")]}
OUTCOMES = {
    #                            add   evolve           try_evolve       lenient          ignore              exception
    "nothing": ({}, {}, {}, {}, {}, {}),
    "a new column": (ADD, ADD, ADD, ADD, {"left_out": ["z"]}, STOP),
    "a column less": (STOP, {"drop": ["a"]}, {"drop": ["a"]}, {}, {}, STOP),
    "another name": (STOP, STOP, {"add": ["b"]}, {"add": ["b"]}, {"left_out": ["b"]}, STOP),
    "a known new name": (STOP, RENAME, RENAME, {"add": ["b"]}, {"left_out": ["b"]}, STOP),
    "a known new name and a wider type": (
        STOP,
        {"rename": [("n", "m")], "widen": ["m"]},
        {"rename": [("n", "m")], "widen": ["m"]},
        {"add": ["m"]},
        {"left_out": ["m"]},
        STOP,
    ),
    "a known new name of the key": (
        STOP,
        {"rename": [("id", "nr")]},
        {"rename": [("id", "nr")]},
        {"add": ["nr"]},
        {"left_out": ["nr"]},
        STOP,
    ),
    "a known drop and a new column": (
        STOP,
        {"drop": ["a"], **ADD},
        {"drop": ["a"], **ADD},
        ADD,
        {"left_out": ["z"]},
        STOP,
    ),
    "a name that the target has": (STOP, STOP, {}, {}, {}, STOP),
    "a wider type": (WIDEN, WIDEN, WIDEN, WIDEN, {"casts": ["n"]}, STOP),
    "a narrower type": ({}, {}, {}, {}, {}, STOP),
    "another type": (STOP, STOP, {"casts": ["n"]}, STOP, {"casts": ["n"]}, STOP),
    "another type of the key": (STOP, STOP, STOP, STOP, STOP, STOP),
}


def looked_at(change: str, behavior: str) -> Evolution:
    wanted = tuple(TargetColumn(name, kind) for name, kind in {**CHANGES[change], "_p": "string"}.items())
    return evolution(
        HAVE,
        wanted,
        key=("id",),
        own_columns=frozenset({"_p"}),
        behavior=behavior,
        widens=lambda old, new: (old, new) == ("int", "bigint"),
        source="db.dbo.t",
        target="the table t",
        steps=KNOWN.get(change, ()),
    )


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("change", CHANGES)
def test_each_change_under_each_behaviour(change: str, behavior: str) -> None:
    expected = OUTCOMES[change][BEHAVIORS.index(behavior)]
    if expected == STOP:
        with pytest.raises(SchemaError, match=r"able db\.dbo\.t (has|is)|of table db\.dbo\.t"):
            looked_at(change, behavior)
        return
    found = looked_at(change, behavior)
    told = {
        "add": [column.name for column in found.add],
        "widen": [column.name for column in found.widen],
        "rename": list(found.rename),
        "drop": list(found.drop),
        "left_out": sorted(found.left_out),
        "casts": sorted(found.casts or {}),
    }
    assert {name: value for name, value in told.items() if value} == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "fits"),
    [
        ("bigint", "int", True),
        ("int", "bigint", False),
        ("decimal(10,0)", "int", True),
        ("decimal(10,2)", "int", False),
        ("decimal(12,2)", "decimal(10,2)", True),
        ("decimal(12,4)", "decimal(11,2)", False),
        ("double", "float", True),
        ("double", "bigint", False),
        ("string", "int", False),
    ],
)
def test_which_types_hold_all_values_of_which(wide: str, narrow: str, fits: bool) -> None:
    assert holds_spark(wide, narrow) is fits


@pytest.mark.parametrize(
    ("old", "new", "delta", "iceberg"),
    [
        ("int", "bigint", True, True),
        ("smallint", "int", True, False),  # Both are int in Iceberg, so there is nothing to widen.
        ("int", "decimal(10,0)", True, False),
        ("bigint", "decimal(19,0)", False, False),
        ("decimal(10,2)", "decimal(12,2)", True, True),
        ("decimal(10,2)", "decimal(12,4)", True, False),
        ("date", "timestamp_ntz", True, False),
        ("float", "double", True, True),
        ("bigint", "int", False, False),
        ("string", "int", False, False),
    ],
)
def test_what_each_format_widens(old: str, new: str, delta: bool, iceberg: bool) -> None:
    assert DeltaTable(None, "/t").widens(old, new) is delta  # type: ignore[arg-type]
    assert IcebergTable(None, ("c", "t")).widens(old, new) is iceberg  # type: ignore[arg-type]
