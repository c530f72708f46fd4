"""The generations of Debezium events, as data.

Source: Debezium's documentation of the SQL Server connector; recorded events of that connector,
1.7.2 and 3.6.1; the documented events of the Oracle and Db2 connectors 2.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headrace.changes import TableId
from headrace.formats.debezium.connectors import NEWEST, OLD, SECOND, THIRD

_INVALID_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True)
class EventShape:
    """What differs between the generations of Debezium events; where nothing is said, as the newest has it.

    Args:
        name: `1.7`, `2.3`, `3.0` or `3`.
        generation: its index among them, from 1.
        connector_version: what stands in `source.version` unless set otherwise.
        database_in_topic: whether topics and schema names carry the database, where the connector's can.
        envelope_version: the version of the envelope's schema, if it has one.
        source_version: the version of the source block's schema, if it has one.
        transaction_name: the name of the transaction block's schema, if it has one.
        transaction_first: whether the transaction block comes before `op` (else it is last).
        fine_times: whether `ts_us` and `ts_ns` stand beside `ts_ms`.
        snapshot_marks: the values that the schema allows for `source.snapshot`.
        placeholder: whether a column that a change does not carry is written as a placeholder (else null).
        schema_names: `avro` or `none`, how schema names are adjusted unless set otherwise.
        metadata_version: the version of the schemas of schema changes, transactions and heartbeats, if they have one.
        detailed: whether schema changes tell comments, defaults and identity, and have, as transactions, a `ts_ms`.
        column_names: whether a column's propagated type comes with its name.
        time_modes: the time precision modes that this generation has.
    """

    name: str
    generation: int
    connector_version: str
    database_in_topic: bool = True
    envelope_version: int | None = 2
    source_version: int | None = 1
    transaction_name: str | None = "event.block"
    transaction_first: bool = True
    fine_times: bool = True
    snapshot_marks: str = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    placeholder: bool = True
    schema_names: str = "none"
    metadata_version: int | None = 1
    detailed: bool = True
    column_names: bool = True
    time_modes: tuple[str, ...] = (
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
    )  # fmt: skip

    def topic(self, prefix: str, table: TableId, delimiter: str = ".", *, database: bool = True) -> str:
        """The topic of a table's events; characters that Kafka does not allow become `_`.

        Args:
            database: whether the connector is one whose topics carry the database.
        """
        parts = (prefix, table.database if self.database_in_topic and database else "", table.schema, table.name)
        return valid_topic(delimiter.join(part for part in parts if part))


def valid_topic(name: str) -> str:
    """A topic name in which `_` stands for every character that Kafka does not allow."""
    return _INVALID_TOPIC.sub("_", name)


_NEWEST = EventShape("3", NEWEST, "3.6.1.Final")
# The first releases of generation 3: no version on the source block, no context headers, no placeholder.
_THIRD = replace(
    _NEWEST, name="3.0", generation=THIRD, connector_version="3.0.8.Final", source_version=None, placeholder=False
)
_SECOND = replace(
    _THIRD,
    name="2.3",
    generation=SECOND,
    connector_version="2.3.4.Final",
    envelope_version=None,
    transaction_first=False,
    fine_times=False,
    snapshot_marks="true,last,false,incremental",
    placeholder=True,
    schema_names="avro",
    time_modes=("adaptive", "adaptive_time_microseconds", "connect"),
)
_OLD = replace(
    _SECOND,
    name="1.7",
    generation=OLD,
    connector_version="1.7.2.Final",
    database_in_topic=False,
    transaction_name=None,
    snapshot_marks="true,last,false",
    placeholder=False,
    metadata_version=None,
    detailed=False,
    column_names=False,
)
SHAPES = {shape.name: shape for shape in (_OLD, _SECOND, _THIRD, _NEWEST)}
