"""Debezium's change events as JSON: what its connectors put into Kafka through Connect's JsonConverter."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.formats.debezium_decode import decode
from headrace.formats.debezium_encode import EncodePlan
from headrace.formats.debezium_options import OPTIONS, field_rules, value_modes
from headrace.formats.debezium_schema import SHAPES
from headrace.formats.debezium_tables import Tables, in_order
from headrace.formats.debezium_topics import topics
from headrace.formats.encoding import has_struct_images, struct_schema, with_structures_known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DebeziumJson(Format):
    """Debezium's JSON events, in the shapes of its SQL Server connector 1.7 and 3.

    Encoding: every data row becomes the event that Debezium writes for it, field for field and in the same order. A
    delete is followed by its tombstone; an update that changes the key becomes delete, tombstone and create with
    Debezium's key headers. The messages of one change share its position, the second and third with `:1` and `:2`
    behind it. A `schema` row that is a change (`source['change']`) becomes a message of the schema-change topic,
    `begin` and `end` rows of the transaction topic, `heartbeat` rows of the heartbeat topic; other rows give no
    message. In shape 3 the schema changes of a snapshot come in the order of the tables' names.

    Ordering: none is imposed; `position` gives it. Idempotence: the rows alone decide the bytes (the envelope's clock
    is `capture_time`). Process: expressions in executors; a batch DataFrame's `schema` rows are collected on the driver
    when `encode` is called, which runs a small job over them (persist the batch before, or give the option `schema`).

    Differences from recorded events, on purpose: NULL stays NULL beside a default (`null_as_default` for the recorded
    behaviour); a large value that a change does not carry has the placeholder whatever its type
    (`unavailable_max_as_null`); the commit time is the transaction's end, also as `ts_ms` of BEGIN and END; times keep
    their digits and defaults are unescaped where 1.7.2 cut them or did not.

    Source: seed 000 (data change events); spec/sqlserver.md sections 10 to 12; spec/format_debezium.md.
    """

    name = "debezium_json"
    options = OPTIONS

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows, with images as maps, to Debezium events.

        Raises:
            OptionError: an option is missing or contradicts another; a streaming DataFrame without the option `schema`;
            a column type that has no Debezium form; images that are not maps.
        """
        settings = self.settings
        prefix = settings["topic_prefix"]
        if not prefix:
            raise OptionError(
                "Option 'topic_prefix' of format 'debezium_json' is missing.",
                remedy="Set it to the server's logical name, the first part of the topics.",
            )
        shape = SHAPES[settings["shape"]]
        if settings["time_precision_mode"] not in shape.time_modes:
            raise OptionError(
                f"Option 'time_precision_mode' can't be '{settings['time_precision_mode']}' in shape {shape.name}.",
                remedy=f"Known there: {', '.join(shape.time_modes)}.",
            )
        key_schemas = settings["key_schemas_enable"]
        structs = has_struct_images(changes)
        rows, tables = self._tables(changes, structs=structs)
        plan = EncodePlan(
            tables=tables,
            topics=topics(settings, shape),
            shape=shape,
            forms=shape.forms(prefix, settings["connector_version"]),
            modes=value_modes(settings),
            schema_names=settings["schema_name_adjustment_mode"] or shape.schema_names,
            rules=field_rules(settings, shape),
            value_schemas=settings["schemas_enable"],
            key_schemas=settings["schemas_enable"] if key_schemas is None else key_schemas,
            tombstones=settings["tombstones_on_delete"],
            skipped=settings["skipped_operations"],
            context=settings["context_headers"],
            run_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"headrace:{prefix}")),
            schema_changes=settings["include_schema_changes"],
            structs=structs,
        )
        return plan.apply(rows)

    def decode(self, messages: DataFrame) -> DataFrame:
        """Debezium events to change rows; `debezium_decode.decode` says how."""
        return decode(messages, self.settings)

    def _tables(self, changes: DataFrame, *, structs: bool) -> tuple[DataFrame, Tables]:
        """The rows, each with the `schema_id` of one of the structures."""
        given, keys = self.settings["schema"], self.settings["keys"]
        if structs:
            return changes, Tables((struct_schema(changes, given, keys),), single=True)
        rows, schemas = with_structures_known(changes, given, owner=f"format '{self.name}'", keys=keys)
        return rows, Tables(in_order(schemas), given=given is not None, single=given is not None and given.single)
