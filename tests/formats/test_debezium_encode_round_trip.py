"""Rule: decode(encode(rows)) == rows, for every logical type and connector, with schemas on, whatever the rows are."""

from __future__ import annotations

import random
import re
from typing import Any

import debezium_recordings as recordings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.debezium_values import (
    VALUES,
)

from headrace.changes import Column, LogicalType, TableId, TableSchema

WRITTEN_AS = {
    # Debezium has no form of its own for these: what decoding gives is another type of the same text.
    "uint64": "decimal(20,0)",
    "nested": "json",
    "instant(6)": "zoned_timestamp(9)",
}


TABLE = TableSchema(
    TableId("db", "s", "every"),
    (
        Column("id", 1, LogicalType("int64"), nullable=False),
        *(Column(kind, n, LogicalType.parse(kind)) for n, kind in enumerate(VALUES, 2)),
    ),
    ("id",),
)
FACTS = {
    "sqlserver": {"change_lsn": "00000027:00000758:0003", "commit_lsn": "c", "event_serial_no": "2"},
    "oracle": {"txId": "0a", "scn": "9" * 30, "ssn": "4", "redo_thread": "1", "user_name": 'u"', "row_id": "AAA"},
    "db2": {"change_lsn": "1", "commit_lsn": "2"},
    "mysql": {"server_id": "1", "gtid": "g:1", "file": "f", "pos": "4", "row": "0", "thread": "7"},
    "postgresql": {"sequence": '["1","2"]', "txId": "571", "lsn": "24023128"},
}
POOLS = st.fixed_dictionaries({name: st.lists(values, min_size=3, max_size=5) for name, values in VALUES.items()})


def random_image(rng: random.Random, id: str, pools: dict[str, list[str]]) -> dict[str, str | None]:
    image: dict[str, str | None] = {"id": id}
    for name in VALUES:
        image[name] = rng.choice([*pools[name], None])
    for name in rng.choices(["string", "bytes", "int32", "decimal"], k=rng.randrange(3)):
        image.pop(name, None)
    return image


def random_change(rng: random.Random, pools: dict[str, list[str]]) -> dict[str, Any]:
    op, connector = rng.choice("rcudt"), rng.choice(sorted(FACTS))
    id = str(rng.randrange(-(2**63), 2**63))
    moment = rng.randrange(10**16)
    return {
        "op": op,
        "table": {"database": "db", "schema": "" if connector == "mysql" else "s", "name": "every"},
        "key": None if op == "t" else {"id": id},
        "before": random_image(rng, id, pools) if op in "ud" else None,
        "after": random_image(rng, id, pools) if op in "rcu" else None,
        "event_time": recordings.instant(moment),
        "capture_time": recordings.instant(moment + 1),
        "snapshot": rng.choice(["first", "true", "last"]) if op == "r" else None,
        "transaction": rng.choice([None, {"id": "x", "total_order": 5, "data_collection_order": 2}]),
        "source": {"connector": connector} | FACTS[connector],
        "schema_id": TABLE.fingerprint,
    }


NAMES = ("op", "table", "key", "before", "after", "snapshot", "transaction")


def whole_time(name: str, text: str | None) -> str | None:
    return re.sub(r"[.]0+$", "", text) if text is not None and name.startswith("time(") else text


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    out = {name: row[name] for name in NAMES}
    for image in ("before", "after"):
        # Decoding leaves a time's fraction out where it is zero.
        out[image] = out[image] and {name: whole_time(name, text) for name, text in out[image].items()}
    if row["source"]["connector"] == "postgresql" and out["before"]:
        # Its connector writes null for columns that an old row does not say.
        out["before"] = {column.name: out["before"].get(column.name) for column in TABLE.columns}
    out["table"] = {part: text or "" for part, text in row["table"].items()}
    out["time"] = row["event_time"].timestamp()
    out["source"] = {k: v for k, v in sorted(row["source"].items()) if k not in ("version", "name")}
    return out


@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(pools=POOLS, rng=st.randoms(use_true_random=False))
def test_decoding_what_was_encoded_gives_the_rows_back(pools: dict[str, list[str]], rng: random.Random) -> None:
    rng = random.Random(rng.randrange(2**32))
    rows = [random_change(rng, pools) for _ in range(150)]
    messages = recordings.encoded(
        rows, [TABLE], topic_prefix="p", schemas_enable=True, tombstones_on_delete=False, skipped_operations="none",
        connector_version="v",
    )  # fmt: skip
    decoded = recordings.decoded(messages)
    assert [row["error"] for row in decoded if row["op"] == "error"] == []
    found = [row for row in decoded if row["op"] != "schema"]
    assert len(found) == len(rows)
    wrong = []
    for number, (ours, original) in enumerate(zip(found, rows, strict=True)):
        wrong += recordings.differences(comparable(ours), comparable(original), str(number))
    assert wrong[:10] == []
    (structure,) = {
        tuple((c.name, str(c.logical)) for c in TableSchema.from_text(row["table_schema"]).columns)
        for row in decoded
        if row["op"] == "schema"
    }
    assert structure == (("id", "int64"), *((name, WRITTEN_AS.get(name, name)) for name in VALUES))
