"""Producers whose messages are not rows as Debezium's relational connectors write them, and what their users can do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.wire.json_exact import ABSENT, FALSE, NUMBER, OBJECT, STRING, TRUE
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

_CELLS = (
    "{} writes each value as a cell with a mark, and null for a column that the change leaves as it is. Headrace does "
    "not read cells. {}"
)
CONNECTORS: Mapping[str, str] = {
    "cassandra": _CELLS.format("Debezium's connector for Cassandra", "Leave its topics out, and read the tables."),
    "scylla": _CELLS.format("The connector for ScyllaDB", "Leave its topics out, and read the tables."),
    "yugabytedb": _CELLS.format(
        "The connector for YugabyteDB",
        "Let it read a slot of the plug-in pgoutput, from tables with REPLICA IDENTITY FULL.",
    ),
    "mongodb": "Debezium's connector for MongoDB writes documents as text, which have no columns. Headrace does not "
    "read them. Let the transform ExtractNewDocumentState write flat rows, and set unwrapped: true.",
}
"""Why events of a connector are refused, by the name in their source block."""
MARKED_CELLS = _CELLS.format(
    "The connector of this message",
    "YugabyteDB: let it read a slot of the plug-in pgoutput, from tables with REPLICA IDENTITY FULL.",
)
FORMS = (
    "The value is a CloudEvent. Headrace does not read that form: set value.converter of the connector to Debezium's "
    "JSON (org.apache.kafka.connect.json.JsonConverter) or Avro.",
    "The message has the form of Apicurio's ExtJsonConverter, whose schema stands in a registry. Headrace does not "
    "read that form: set key.converter and value.converter of the connector to Debezium's JSON "
    "(org.apache.kafka.connect.json.JsonConverter).",
)
"""Why messages of two forms are refused: a CloudEvent, and Apicurio's."""
_FORM_FIELDS = Names([("specversion", "type", "id", "data", "schemaId", "payload")])
_NAMES = Names([tuple(CONNECTORS)])
_MARK = Names([("set", "value")])


def is_refused(tape: Tape, connector: Array) -> Array:
    """Which of these indexes hold the name of a connector whose events are refused."""
    return tape.among(connector, _NAMES)


def has_mark(tape: Tape, at: Array) -> Array:
    """Which values are cells that say whether the change set them: `{"value": 5, "set": true}`."""
    is_marked: Array = tape.kinds(at) == OBJECT
    if is_marked.any():
        is_set, value = tape.fields(np.where(is_marked, at, np.int32(-1)).astype(np.int32), _MARK)
        is_marked &= np.isin(tape.kinds(is_set), (TRUE, FALSE)) & (tape.kinds(value) != ABSENT)
    return is_marked


def foreign_form(tape: Tape, at: Array) -> Array:
    """Of messages that are no events by their form, which form each has: its index in `FORMS`; -1 for all others."""
    version, type, id, data, schema, payload = (tape.kinds(forms) for forms in tape.fields(at, _FORM_FIELDS))
    forms = np.full(at.size, -1)
    forms[(version == STRING) & (type == STRING) & (id != ABSENT) & (data != ABSENT)] = 0
    forms[(schema == NUMBER) & (payload != ABSENT) & (tape.field_counts(at) == 2)] = 1
    return forms
