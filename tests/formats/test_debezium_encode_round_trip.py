"""Rule: decode(encode(rows)) == rows, for every logical type and connector, with schemas on, whatever the rows are."""

from __future__ import annotations

import base64
import datetime as dt
import random
import re
from typing import Any

import debezium_recordings as recordings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType, TableId, TableSchema

WRITTEN_AS = {
    # Debezium has no form of its own for these: what decoding gives is another type of the same text.
    "uint64": "decimal(20,0)",
    "nested": "json",
    "instant(6)": "zoned_timestamp(9)",
}
DAY_ZERO = dt.datetime(1, 1, 1)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
NANOS = (dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))


def digits(precision: int, scale: int) -> st.SearchStrategy[str]:
    def spelled(number: int) -> str:
        text = str(abs(number)).rjust(scale + 1, "0")
        return ("-" if number < 0 else "") + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)

    return st.integers(1 - 10**precision, 10**precision - 1).map(spelled)


def clocks(precision: int, first: dt.datetime = DAY_ZERO, last: dt.datetime = LAST) -> st.SearchStrategy[str]:
    """`YYYY-MM-DD HH:MM:SS` and a fraction of so many digits."""

    def spelled(moment: dt.datetime, nanos: int) -> str:
        fraction = f".{nanos:09}"[: precision + 1] if precision else ""
        return f"{moment.year:04}-{moment:%m-%d %H:%M:%S}{fraction}"

    return st.builds(spelled, st.datetimes(first, last), st.integers(0, 999_999_999))


def times(precision: int, hours: int = 23) -> st.SearchStrategy[str]:
    def spelled(sign: str, hour: int, minute: int, second: int, nanos: int) -> str:
        fraction = f".{nanos:09}"[: precision + 1] if precision else ""
        text = f"{hour:02}:{minute:02}:{second:02}{fraction}"
        return sign + text if text.strip("0:.") else text

    sixty = st.integers(0, 59)
    return st.builds(
        spelled, st.sampled_from(["", "-"] if hours > 23 else [""]), st.integers(0, hours), sixty, sixty,
        st.integers(0, 999_999_999),
    )  # fmt: skip


def plain_decimals() -> st.SearchStrategy[str]:
    return st.integers(0, 45).flatmap(lambda scale: digits(60, scale))


def integers(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=12)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["true", "false"]),
    **{f"int{bits}": integers(bits) for bits in (8, 16, 32, 64)},
    "uint64": st.integers(0, 2**64 - 1).map(str),
    "decimal(5,0)": digits(5, 0),
    "decimal(18,18)": digits(18, 18),
    "decimal(38,10)": digits(38, 10),
    "decimal(65,30)": digits(65, 30),
    "decimal": plain_decimals(),
    "string": TEXT,
    "json": st.sampled_from(['{"a": 1.10, "b": [null, "\\u0001"]}', "[]", '"x"', "12345678901234567890.10"]),
    "nested": st.sampled_from(['{"a":[1,null]}', "[]"]),
    "uuid": st.uuids().map(str),
    "xml": st.sampled_from(['<a b="1">x</a>', "<é/>"]),
    "interval": st.sampled_from(["P1Y2M3DT4H5M6.78S", "-P1D", "PT0S"]),
    "bytes": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    "date": st.dates().map(lambda day: f"{day.year:04}-{day:%m-%d}"),
    "time(3)": times(3),
    "time(6)": times(6, 838),
    "time(9)": times(9),
    "timestamp(3)": clocks(3),
    "timestamp(6)": clocks(6),
    "timestamp(9)": clocks(9, *NANOS),
    "instant(6)": clocks(6).map(lambda text: f"{text.replace(' ', 'T').rstrip('0').rstrip('.')}Z"),
    "zoned_timestamp(9)": st.sampled_from(["2018-07-13T12:23:45Z", "0001-01-01T00:00:00.123456789+14:00"]),
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
