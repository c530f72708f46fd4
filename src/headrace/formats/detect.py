"""Which wire format messages are in, told from their bytes, with the reasons.

Each format is recognised by what only its messages have: names of JSON fields, the marks of an encoder. A message that
shows nothing of the kind (a tombstone, a heartbeat, an unreadable one) speaks for no format and against none. When the
messages speak for two, or for none, nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace import registry
from headrace.errors import OptionError

SAMPLE = 1000
"""How many messages `detect` looks at."""

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """One message.

    Args:
        value: its bytes; None for Kafka's null.
        key: the same of its key.
        headers: its record headers' names.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What one message says: it may be of this format.

    Args:
        format: a registered name.
        why: what was seen, to be read after `because`.
        options: options of the format without which the message can't be read.
    """

    format: str
    why: str
    options: Options = ()


@dataclass(frozen=True)
class Detection:
    """The format of a sample.

    Args:
        format: its registered name.
        options: options of the format that the messages ask for.
        sentence: the format and the reasons, for a person.
    """

    format: str
    options: Mapping[str, str]
    sentence: str


def detect(messages: Sequence[Sample]) -> Detection:
    """The one registered format that these messages speak for. Looks at the first `SAMPLE` messages.

    A format of a third party takes part if its class has a static method `recognise(value, key, headers)` that gives a
    reason as text, or None.

    Raises:
        OptionError: they speak for none or for several; names the candidates with their reasons.
    """
    sample = messages[:SAMPLE]
    registered = registry.names("format")
    others = _third_parties(registered)
    found: dict[tuple[str, Options], Counter[str]] = {}
    undecided: dict[tuple[str, Options], Counter[str]] = {}
    for message in sample:
        said_by_it = [*recognise(message), *(e for other in others for e in other(message))]
        known = [evidence for evidence in said_by_it if evidence.format in registered]
        # What may be of two formats decides nothing, unless no other message tells which of them.
        for evidence in known:
            counts = found if len(said_by_it) == 1 else undecided
            counts.setdefault((evidence.format, evidence.options), Counter())[evidence.why] += 1
    if not found.keys() & undecided.keys():
        found |= undecided
    if not found:
        raise OptionError(
            f"None of {_messages(len(sample))} shows the marks of a format.",
            remedy=f"Name it with --format: {', '.join(registered)}.",
        )
    if len(found) > 1:
        candidates = "; ".join(_candidate(format, options, whys) for (format, options), whys in sorted(found.items()))
        raise OptionError(
            f"The format of {_messages(len(sample))} is not clear. Candidates: {candidates}.",
            remedy="Choose one with --format, and messages of one format.",
        )
    (((format, options), whys),) = found.items()
    said = sum(whys.values())
    silent = len(sample) - said
    sentence = _candidate(format, options, whys)
    if silent:
        sentence += f"; {silent} of {_messages(len(sample))} {'shows' if silent == 1 else 'show'} no format"
    return Detection(format, dict(options), sentence)


def _candidate(format: str, options: Options, whys: Counter[str]) -> str:
    given = "".join(f" with {name}={value}" for name, value in options)
    reason = max(whys, key=lambda why: whys[why])
    return f"{format}{given} ({_messages(sum(whys.values()))}: {reason})"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _third_parties(registered: Sequence[str]) -> list[Callable[[Sample], list[Evidence]]]:
    found = []
    for name in registered:
        if name in registry.built_in_names("format"):
            continue
        kind = registry.find("format", name)
        if callable(getattr(kind, "recognise", None)):
            found.append(_asked(name, kind.recognise))
    return found


def _asked(name: str, recognises: Callable[..., str | None]) -> Callable[[Sample], list[Evidence]]:
    def ask(message: Sample) -> list[Evidence]:
        why = recognises(message.value, message.key, message.headers)
        return [] if why is None else [Evidence(name, why)]

    return ask


def recognise(message: Sample) -> list[Evidence]:
    """What one message says of its format: nothing, one format, or all that it may be."""
    if message.value is None:
        return []
    if message.value.lstrip()[:1] == b"{":
        return _of_json(message.value)
    return _of_bytes(message)


# --- JSON ---------------------------------------------------------------------------------------------------------


def _of_json(value: bytes) -> list[Evidence]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    return [e for recogniser in _JSON if (e := recogniser(found)) is not None]


_CANAL_ROWS = frozenset(("INSERT", "UPDATE", "DELETE", "INIT"))
_MAXWELL = re.compile(r"(insert|update|delete|bootstrap-\w+|(table|database)-(create|alter|drop))")
_SHAREPLEX = re.compile(r"ins|upd|del|trunc|ddl|commit|insert|update( before| after)?|delete|truncate|drop column")
_DEBEZIUM_SCHEMAS = (
    ".Envelope",
    ".Heartbeat",
    ".TransactionMetadataValue",
    ".SchemaChangeValue",
    ".Notification",
)


def _canal(found: dict[str, Any]) -> Evidence | None:
    kind = found.get("type")
    if not isinstance(kind, str) or not kind.isupper():
        return None
    if isinstance(found.get("isDdl"), bool) and "es" in found:
        return Evidence("canal_json", "an upper-case `type` beside `isDdl` and `es`")
    if kind in _CANAL_ROWS and isinstance(found.get("data"), list):
        return Evidence("canal_json", "an upper-case `type` beside rows in an array `data`")
    return None


def _maxwell(found: dict[str, Any]) -> Evidence | None:
    kind = found.get("type")
    if not isinstance(kind, str) or not _MAXWELL.fullmatch(kind) or "database" not in found or "ts" not in found:
        return None
    return Evidence("maxwell_json", "a lower-case `type` beside `database` and `ts`")


def _ogg(found: dict[str, Any]) -> Evidence | None:
    if found.get("op_type") in ("I", "U", "D", "T") and isinstance(found.get("table"), str) and "op_ts" in found:
        return Evidence("ogg_json", "an `op_type` of one letter beside `table` and `op_ts`")
    return None


def _shareplex(found: dict[str, Any]) -> Evidence | None:
    meta = found.get("meta")
    if isinstance(meta, dict) and _SHAREPLEX.fullmatch(str(meta.get("op")).lower()):
        return Evidence("shareplex_json", "an operation in `meta.op`")
    return None


def _qlik(found: dict[str, Any]) -> Evidence | None:
    if found.get("magic") == "atMSG" and "message" in found:
        return Evidence("qlik_json", "the envelope with `magic` atMSG")
    headers = found.get("headers")
    if "data" in found and isinstance(headers, dict) and "operation" in headers and "changeSequence" in headers:
        return Evidence("qlik_json", "`operation` and `changeSequence` in `headers`")
    if {"schemaId", "lineage", "tableStructure"} <= found.keys():
        return Evidence("qlik_json", "a metadata message with `lineage` and `tableStructure`")
    return None


def _debezium(found: dict[str, Any]) -> Evidence | None:
    if found.keys() == {"schema", "payload"} and isinstance(found["payload"], dict):
        name = found["schema"].get("name") if isinstance(found["schema"], dict) else None
        if isinstance(name, str) and name.endswith(_DEBEZIUM_SCHEMAS):
            return Evidence("debezium_json", f"a schema named `*{name[name.rindex('.') :]}`")
        found = found["payload"]
    source = found.get("source")
    if isinstance(source, dict) and "connector" in source:
        if isinstance(found.get("op"), str):
            return Evidence("debezium_json", "`op` beside a block `source` with a `connector`")
        if "ddl" in found or "tableChanges" in found:
            return Evidence("debezium_json", "`tableChanges` beside a block `source`")
    if found.get("status") in ("BEGIN", "END") and {"id", "event_count", "data_collections"} <= found.keys():
        return Evidence("debezium_json", "a transaction's `status`, `event_count` and `data_collections`")
    own = sorted(name for name in found if name in ("__op", "__deleted") or name.startswith("__source_"))
    if own:
        return Evidence("debezium_json", f"a flat row with `{own[0]}`", (("unwrapped", "true"),))
    return None


_JSON: tuple[Callable[[dict[str, Any]], Evidence | None], ...] = (_canal, _debezium, _maxwell, _ogg, _qlik, _shareplex)


# --- bytes --------------------------------------------------------------------------------------------------------

_QLIK_ENVELOPE = re.compile(rb"atMSG\x04(MD|DT)", re.DOTALL)
# What stands in an Avro datum in clear: a text's length, zigzag, and its bytes.
_QLIK_SEQUENCE = re.compile(rb"F\d{35}")
_DEBEZIUM_SOURCE = re.compile(
    rb"[\x10-\x30]\d+\.\d+\.\d+\.(?:Final|Alpha\d*|Beta\d*|CR\d*|SNAPSHOT)[\x04-\x30]"
    rb"(?:mysql|mariadb|postgresql|sqlserver|oracle|db2|mongodb|informix|vitess|spanner|cassandra|cockroachdb)"
)
_CONFLUENT_HEADERS = frozenset(("__value_schema_id", "__key_schema_id"))
_SECONDS_MOST = 10**11
_APICURIO_HEADERS = frozenset(("apicurio.value.globalId", "apicurio.value.contentId"))


def _of_bytes(message: Sample) -> list[Evidence]:
    value = message.value or b""
    if _QLIK_ENVELOPE.match(value):
        return [Evidence("qlik_avro", "the envelope's first bytes, atMSG")]
    if _is_dts(value):
        return [Evidence("dts_avro", "a DTS record, without any frame")]
    framing: Options
    if _CONFLUENT_HEADERS & set(message.headers):
        framing, frame = (("framing", "confluent-header"),), "a schema id in Confluent's record header"
    elif _APICURIO_HEADERS & set(message.headers):
        framing, frame = (("framing", "apicurio-header"),), "a schema id in Apicurio's record header"
    elif value[:5] == bytes(5) and any(value[5:9]) and len(value) > 9:
        # Registries count from 1, so these are the upper half of an id of eight bytes.
        framing, frame = (("framing", "apicurio8"),), "a zero byte and a schema id of eight bytes"
    elif value[:1] == b"\0" and len(value) > 5 and any(value[1:5]) and value[1] < 0x80:
        framing, frame = (), "a zero byte and a schema id of four bytes"
    else:
        return []
    if _QLIK_SEQUENCE.search(value):
        return [Evidence("qlik_avro", f"{frame}, and a change sequence of 35 digits", framing)]
    if _DEBEZIUM_SOURCE.search(value):
        return [Evidence("debezium_avro", f"{frame}, and a Debezium version before a connector's name", framing)]
    return [
        Evidence(name, f"{frame}, but nothing that tells whose", framing) for name in ("debezium_avro", "qlik_avro")
    ]


def _is_dts(value: bytes) -> bool:
    """Whether the bytes are a DTS record that has a time and a position, as bytes of another kind seldom do."""
    from headrace.formats.dts.record import FIELD, SCHEMA
    from headrace.wire.avro_tape import AvroTape

    tape = AvroTape(pa.array([value], pa.binary()), SCHEMA)
    fields = tape.records(tape.root, len(FIELD))
    seconds, position = tape.numbers(fields[FIELD["sourceTimestamp"]])[0], fields[FIELD["sourcePosition"]]
    return bool(0 < seconds < _SECONDS_MOST and tape.is_text(position)[0] and tape.text(position[0]))
