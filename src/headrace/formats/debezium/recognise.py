"""By what a message of Debezium is known: fields, schema names and texts that only its messages have."""

from __future__ import annotations

import re

from headrace.formats.recognition import Evidence, Sample
from headrace.formats.registry.recognise import recognise_framed

_SCHEMAS = (
    ".Envelope",
    ".Heartbeat",
    ".TransactionMetadataValue",
    ".SchemaChangeValue",
    ".Notification",
)
# What stands in an Avro datum in clear: two texts, each after its length, zigzag.
_SOURCE = re.compile(
    rb"[\x10-\x30]\d+\.\d+\.\d+\.(?:Final|Alpha\d*|Beta\d*|CR\d*|SNAPSHOT)[\x04-\x30]"
    rb"(?:mysql|mariadb|postgresql|sqlserver|oracle|db2|mongodb|informix|vitess|spanner|cassandra|cockroachdb)"
)


def recognise_json(message: Sample) -> Evidence | None:
    """Why the message is one of Debezium's in JSON; None where nothing says so."""
    fields = message.fields
    if fields.keys() == {"schema", "payload"} and isinstance(fields["payload"], dict):
        name = fields["schema"].get("name") if isinstance(fields["schema"], dict) else None
        if isinstance(name, str) and name.endswith(_SCHEMAS):
            return Evidence(f"a schema named `*{name[name.rindex('.') :]}`")
        fields = fields["payload"]
    source = fields.get("source")
    if isinstance(source, dict) and "connector" in source:
        if isinstance(fields.get("op"), str):
            return Evidence("`op` beside a block `source` with a `connector`")
        if "ddl" in fields or "tableChanges" in fields:
            return Evidence("`tableChanges` beside a block `source`")
    if fields.get("status") in ("BEGIN", "END") and {"id", "event_count", "data_collections"} <= fields.keys():
        return Evidence("a transaction's `status`, `event_count` and `data_collections`")
    own = sorted(name for name in fields if name in ("__op", "__deleted") or name.startswith("__source_"))
    if own:
        return Evidence(f"a flat row with `{own[0]}`", (("unwrapped", "true"),))
    if "__op" in message.headers:
        return Evidence("a flat row with the header `__op`", (("unwrapped", "true"),))
    return None


def recognise_avro(message: Sample) -> Evidence | None:
    """Why the message may be one of Debezium's in Avro; None where nothing says so."""
    mark = _SOURCE.search(message.value or b"") is not None
    return recognise_framed(message, mark, "and a Debezium version before a connector's name")
