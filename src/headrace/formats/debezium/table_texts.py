"""What an encode is told, and the texts that a table gives all its events: topic, schemas, the ends of keys."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.changes import TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.change_messages import quoted
from headrace.formats.debezium.blocks import Forms, SourceBlock
from headrace.formats.debezium.connect_fields import Opening
from headrace.formats.debezium.connect_schemas import FieldRules, adjusted, envelope_fields
from headrace.formats.debezium.shapes import EventShape
from headrace.formats.debezium.topics import TopicNames
from headrace.formats.debezium.wire_types import ValueModes
from headrace.formats.debezium.written import WrittenSchema
from headrace.wire.json_writer import to_text


@dataclass(frozen=True)
class EncodeSettings:
    """What an encode needs to know besides the rows and their schemas.

    Args:
        topics: where the messages go.
        shape: the generation of events.
        forms: the source blocks.
        modes: how values are written.
        schema_names: how schema names are adjusted, `avro` or `none`.
        rules: how columns become fields.
        value_schemas: whether values carry their schema.
        key_schemas: whether keys (and key headers) carry their schema.
        tombstones: whether a delete is followed by a null value.
        skipped: operations that give no message.
        context: whether the context headers of shape 3 are written.
        run_id: what stands in their `runId`.
        schema_changes: whether schema changes are written.
        given: whether the schemas are the option's; then a row without a `schema_id` has the schema of its table.
        single: whether the option holds one schema, which all rows follow.
    """

    topics: TopicNames
    shape: EventShape
    forms: Forms
    modes: ValueModes
    schema_names: str
    rules: FieldRules
    value_schemas: bool
    key_schemas: bool
    tombstones: bool
    skipped: frozenset[str]
    context: bool
    run_id: str
    schema_changes: bool
    given: bool = False
    single: bool = False

    def router_field(self, schema: TableSchema) -> tuple[str, str] | None:
        """The field that a router adds to keys, and its value.

        Raises:
            OptionError: a column of the key is called so.
        """
        topics = self.topics
        route = topics.route
        if route is None or route.key_field is None or topics.routed(schema.id) is None:
            return None
        if route.key_field in {self.rules.names(schema)[name] for name in schema.key}:
            raise OptionError(
                f"The key of table {schema.id} has a column '{route.key_field}' already.",
                remedy="Set 'key_field_name' to another name.",
            )
        return route.key_field, route.key_value(topics.unrouted(schema.id))


@dataclass(frozen=True)
class TableTexts:
    """What a table says of all its events of one form: parts of their texts.

    Args:
        topic: where they go.
        value: what opens a value, up to its first field; then the same for one without a transaction.
        key: what opens and closes a key.
        header: the same for the key in a header.
        base: the name of its schemas.
    """

    topic: str
    value: tuple[str, str]
    key: tuple[str, str]
    header: tuple[str, str]
    base: str

    @classmethod
    def of(
        cls, writing: EncodeSettings, block: SourceBlock, written: WrittenSchema, id: TableId | None, opening: Opening
    ) -> TableTexts:
        """The texts of a table.

        Args:
            writing: how messages are written.
            block: the source block of its events.
            written: its schema.
            id: its name, where the schema has none.
            opening: what stands in front of a payload, by the text of its schema.

        Raises:
            OptionError: a table without a name is to be routed, or a router's field is a column.
        """
        topics, schema, database = writing.topics, written.schema, block.connector.database_in_topic
        if id is not None and topics.route is not None:
            raise nameless_route()
        table = schema.id if id is None else id
        unrouted = topics.unrouted(table, database=database)
        topic = topics.routed(table, database=database) or unrouted
        base, first = (adjusted(name, writing.schema_names) for name in (topic, unrouted))
        field = writing.router_field(schema)
        value = '{"before":'
        values = (value, value)
        key, header = ("", "}"), ("", "}")
        if field is not None:
            key = ("", f",{quoted(field[0])}:{quoted(field[1])}}}")
        if writing.value_schemas:
            always, seldom = (
                opening(_envelope(written.row_schema, base, block, transaction=transaction))
                for transaction in (True, not block.flag)
            )
            values = (always + value, seldom + value)
        if writing.key_schemas:
            start, end = written.key_schema(None if field is None else field[0])
            key = (opening(f"{start}{base}{end}"), key[1] + "}")
            start, end = written.key_schema(None)
            header = (f'{{"schema":{start}{first}{end},"payload":', header[1] + "}")
        return cls(topic, values, key, header, base)


def _envelope(cut: tuple[str, str], base: str, block: SourceBlock, *, transaction: bool) -> str:
    """The schema of a value."""
    shape = block.shape
    row, end = f"{cut[0]}{base}", cut[1].removesuffix("}")
    rest = ",".join(to_text(field) for field in envelope_fields(shape, transaction=transaction))
    version = f',"version":{shape.envelope_version}' if shape.envelope_version is not None else ""
    return (
        f'{{"type":"struct","fields":[{row}{end},"field":"before"}},{row}{end},"field":"after"}},'
        f'{to_text(block.schema())},{rest}],"optional":false,"name":"{base}.Envelope"{version}}}'
    )


def nameless_route() -> OptionError:
    """What to raise where tables are routed and the schema has no name."""
    return OptionError(
        "Option 'topic_route_regex' of format 'debezium_json' needs the names of the tables.",
        remedy="Give the option 'schema' as a TableSchema, or rows whose schema rows are among them.",
    )
