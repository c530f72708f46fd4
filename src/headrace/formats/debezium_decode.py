"""Debezium messages to change rows: which way they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.formats.debezium_decode_maps import map_rows, parsed_messages, with_images, with_kinds
from headrace.formats.debezium_decode_structs import struct_rows
from headrace.formats.debezium_parts import with_places
from headrace.formats.debezium_structures import (
    DESCRIBED,
    PLAN_DDL,
    StructureReader,
    given_reader,
    structure_text,
    with_described,
)
from headrace.formats.messages import kafka_columns
from headrace.formats.structures import with_structures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decode(messages: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Debezium events, with or without their schemas, to change rows.

    With schemas, images are typed by them and each structure gives a `schema` row before its first row; a batch
    DataFrame is then read twice, because the structures are collected first. Without, values stay as they came. With
    the option `schema` as a list, the tables' structures say what the values are; with one structure or a DDL, images
    are structs (`debezium_decode_structs`).

    Tombstones become `tombstone` rows. Schema changes become `schema` rows, one per table, with `source['change']` and
    `source['ddl']`; edges of transactions `begin` and `end` rows, heartbeats `heartbeat` rows, logical messages
    `message` rows with `source['prefix']` and `source['content']`; notifications are no events. A column that holds the
    unavailable-value placeholder is left out of the image. The field that a router adds to keys (`key_field_name`) is
    left out of the key. What can't be read, and what is none of these, becomes an `error` row.

    Raises:
        OptionError: `schema` holds two structures that can't be told apart.
    """
    given = settings["schema"]
    if given is not None and given.single:
        return struct_rows(kafka_columns(messages), settings, given.only(settings["keys"]))
    unwrapped = settings["unwrapped_prefix"] if settings["unwrapped"] else None
    if given is None:
        reader = StructureReader(
            settings["key_field_name"], settings["binary_handling_mode"], unwrapped, tuple(settings["keys"])
        )
    else:
        reader = given_reader(settings, given.tables)
    text = structure_text(given=given is not None, unwrapped=unwrapped)
    described = with_described(with_places(kafka_columns(messages)), given=given is not None)
    found = with_structures(described, text, reader, PLAN_DDL, without=DESCRIBED)
    made = with_images(with_kinds(parsed_messages(found, unwrapped), settings), settings)
    return map_rows(made, settings, by_topic=given is not None)
