"""Alibaba DTS Avro: the records of a change tracking channel, as they stand in its Kafka topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.formats.base import COMMON, Format
from headrace.formats.dts_decode import decode_maps
from headrace.formats.dts_structs import decode_structs
from headrace.formats.features import Feature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DtsAvro(Format):
    """Records of Alibaba DTS: bare Avro of one fixed schema, one record per message, all tables in one topic."""

    name = "dts_avro"
    options = (*COMMON,)
    reads = frozenset((Feature.READ,))
    writes = frozenset()

    def decode(self, messages: DataFrame) -> DataFrame:
        """x"""
        given, keys = self.settings["schema"], self.settings["keys"]
        if given is not None and given.single:
            return decode_structs(messages, given.only(keys), keys)
        return decode_maps(messages, keys, None if given is None else given.tables)
