"""Which format messages are in: each by its own marks, and nothing guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import registry
from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.formats.detect import detect, recognise
from headrace.formats.recognition import Evidence, Sample

FORMATS = [
    "canal_json",
    "debezium_avro",
    "debezium_json",
    "dts_avro",
    "maxwell_json",
    "ogg_json",
    "qlik_avro",
    "qlik_json",
    "shareplex_json",
]


@pytest.fixture(autouse=True)
def all_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each format takes part, whatever is installed beside it."""
    monkeypatch.setattr(registry, "names", lambda kind: FORMATS)


def asked(message: Sample) -> dict[str, Evidence]:
    return recognise(message, {name: registry.find("format", name) for name in FORMATS})


def text(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def number(value: int) -> bytes:
    """A long as Avro writes it."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def avro_text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def dts(operation: int = 1, seconds: int = 1_700_000_000) -> bytes:
    head = number(0) + number(4711) + number(seconds) + avro_text("72469@78") + avro_text("72347@78") + avro_text("0")
    return head + number(0) + avro_text("8.0.28") + number(operation) + b"\x00\x00\x00\x00\x00\x00"


SOURCE = avro_text("3.0.8.Final") + avro_text("postgresql") + avro_text("srv")
SEQUENCE = avro_text("2" * 35)
DEBEZIUM = {"before": None, "after": {"id": 1}, "source": {"connector": "mysql"}, "op": "c", "ts_ms": 1}

ONE = {
    "canal_json": [
        text(data=[{"id": "1"}], type="INSERT", isDdl=False, es=1, table="t"),
        text(database="d", type="DDL", isDdl=True, es=1, sql="drop table t"),
        text(data=[{"id": 1}], type="UPDATE"),
    ],
    "debezium_json": [
        text(**DEBEZIUM),
        text(schema={"type": "struct", "name": "s.t.Envelope"}, payload=DEBEZIUM),
        text(schema={"type": "struct", "name": "io.debezium.connector.common.Heartbeat"}, payload={"ts_ms": 1}),
        text(status="END", id="1", event_count=1, data_collections=[], ts_ms=1),
        text(source={"connector": "oracle"}, ts_ms=1, ddl="drop table t", tableChanges=[]),
    ],
    "maxwell_json": [
        text(database="d", table="t", type="update", ts=1, data={"id": 1}, old={}),
        text(database="d", type="database-create", ts=1, sql="create database d"),
    ],
    "ogg_json": [text(table="O.T", op_type="T", op_ts="2020-05-13 17:32:10.904000")],
    "qlik_json": [
        text(magic="atMSG", type="DT", message={}),
        text(data={}, beforeData=None, headers={"operation": "INSERT", "changeSequence": "1"}),
        text(schemaId="1", lineage={}, tableStructure={}, dataSchema="{}"),
    ],
    "shareplex_json": [text(meta={"op": "ins"}, data={}), text(meta={"op": "UPDATE BEFORE"}, data={})],
    "qlik_avro": [b"atMSG\x04MD\x00", b"\x00\x00\x00\x00\x65" + SEQUENCE],
    "dts_avro": [dts(), dts(operation=16)],
    "debezium_avro": [b"\x00\x00\x00\x00\x01\x00" + SOURCE],
}


@pytest.mark.parametrize(("format", "value"), [(format, value) for format, values in ONE.items() for value in values])
def test_each_message_speaks_for_its_format_alone(format: str, value: bytes) -> None:
    assert [(name, found.options) for name, found in asked(Sample(value)).items()] == [(format, ())]
    found = detect([Sample(value)])
    assert (found.format, found.options) == (format, {})
    assert found.sentence.startswith(f"{format} (1 message: ")


SILENT = [
    None,
    b"",
    b"{}",
    b'{"op":',
    b"[1,2]",
    b"plain text",
    text(ts_ms=1),
    text(data=[], type="insert"),
    text(type="INSERT"),
    text(schema={"type": "struct"}, payload={"id": 1}),
    b"\x00" * 48,
    dts(operation=17),
    dts(seconds=-5),
    dts()[:20],
    b"{" * 100_000,
]


@pytest.mark.parametrize("value", SILENT, ids=range(len(SILENT)))
def test_what_shows_no_format_speaks_for_none(value: bytes | None) -> None:
    assert asked(Sample(value)) == {}
    with pytest.raises(OptionError, match="None of 1 message has the marks of a known format"):
        detect([Sample(value)])


def test_silent_messages_are_counted_and_do_not_matter() -> None:
    found = detect([Sample(text(**DEBEZIUM)), Sample(None), Sample(b"\x07"), Sample(text(**DEBEZIUM))])
    assert found.sentence == (
        "debezium_json (2 messages: `op` beside a block `source` with a `connector`); 2 of 4 messages show no format"
    )


def test_two_formats_in_one_sample_are_refused_with_their_reasons() -> None:
    with pytest.raises(OptionError) as caught:
        detect([Sample(ONE["canal_json"][0]), *[Sample(ONE["ogg_json"][0])] * 3])
    assert str(caught.value) == (
        "The format of 4 messages is not clear. Candidates: canal_json (1 message: an upper-case `type` beside `isDdl` "
        "and `es`); ogg_json (3 messages: an `op_type` of one letter beside `table` and `op_ts`). Choose one with "
        "--format, and pass messages of one format only."
    )


def test_flat_debezium_rows_ask_for_their_option() -> None:
    found = detect([Sample(text(id=1, __op="c", __deleted="false"))])
    assert (found.format, found.options) == ("debezium_json", {"unwrapped": "true"})
    assert "debezium_json with unwrapped=true" in found.sentence
    with pytest.raises(OptionError, match="is not clear"):
        detect([Sample(text(id=1, __op="c")), Sample(text(**DEBEZIUM))])


def test_a_frame_alone_does_not_say_whose_avro_it_is() -> None:
    framed = Sample(b"\x00\x00\x00\x00\x07\x02\x04")
    with pytest.raises(OptionError, match=r"Candidates: debezium_avro .* nothing that tells whose\); qlik_avro "):
        detect([framed])
    # Where another message of the sample tells, it is one of those.
    assert detect([framed, Sample(ONE["qlik_avro"][1])]).format == "qlik_avro"
    assert detect([framed, Sample(ONE["debezium_avro"][0])]).format == "debezium_avro"


@pytest.mark.parametrize(
    ("value", "headers", "framing"),
    [
        (b"\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00" + SOURCE, (), "apicurio8"),
        (b"\x00\x02" + SOURCE, ("apicurio.value.globalId",), "apicurio-header"),
        (b"\x00\x02" + SOURCE, ("__value_schema_id",), "confluent-header"),
    ],
)
def test_the_framing_is_told_where_it_can_be(value: bytes, headers: tuple[str, ...], framing: str) -> None:
    found = detect([Sample(value, headers=headers)])
    assert (found.format, found.options) == ("debezium_avro", {"framing": framing})


def test_a_format_that_is_not_registered_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", lambda kind: ["debezium_json"])
    with pytest.raises(OptionError, match="Name it with --format: debezium_json"):
        detect([Sample(ONE["canal_json"][0])])


def test_a_third_party_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipes(Format):
        @classmethod
        def recognise(cls, message: Sample) -> Evidence | None:
            return Evidence("fields between bars") if message.value and message.value.count(b"|") > 1 else None

    monkeypatch.setattr(registry, "names", lambda kind: [*FORMATS, "pipes"])
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda kind, name: Pipes if name == "pipes" else find(kind, name))
    found = detect([Sample(b"a|b|c")])
    assert (found.format, found.sentence) == ("pipes", "pipes (1 message: fields between bars)")
    with pytest.raises(OptionError, match=r"debezium_json .*; pipes "):
        detect([Sample(text(**DEBEZIUM)), Sample(b"a|b|c")])


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(value: bytes) -> None:
    for start in (b"", b"{", b"\x00", b"atMSG"):
        asked(Sample(start + value))
