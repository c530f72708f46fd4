"""Every format reads its golden samples as the rows that they mean.

A format joins by its folder alone (`samples.py` says what is in it); no test code is needed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from codec_rows import rows_of
from pyspark.sql import DataFrame, Row, SparkSession
from samples import Sample, difference, formats_with_samples, registry_of, samples_of

import headrace
from headrace.formats.codec import KAFKA_COLUMNS, ArrowFormat
from headrace.registry import find
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())


def decoded_samples(request: pytest.FixtureRequest, format: str) -> dict[int, list[Any]]:
    """The rows by sample number: samples of the same options together, sequences in order."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples_of(format):
        groups[json.dumps(sample.options, sort_keys=True)].append(sample)
    found: dict[int, list[Any]] = defaultdict(list)
    in_spark = not issubclass(find("format", format), ArrowFormat)
    for row in _in_spark(request.getfixturevalue("spark"), format, groups) if in_spark else _alone(format, groups):
        found[row.message.offset].append(row)
    return found


def with_registry(format: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options with the schemas of a format that looks them up."""
    registry = registry_of(format)
    looks_up = registry is not None and (options.get("framing") or format.startswith("debezium"))
    return {**options, "registry": registry} if looks_up else options


def _alone(format: str, groups: Mapping[str, list[Sample]]) -> list[Any]:
    """The rows of a format that needs no Spark."""
    found = []
    for options, samples in groups.items():
        given = with_registry(format, json.loads(options))
        rows = rows_of(format, [sample.message for sample in samples], **given)
        for row in rows:
            moment = row.event_time and round(row.event_time.timestamp() * 1000)
            more = Row("event_ms", "key_names")(moment, row.key and list(row.key))
            found.append(Row(*row.__fields__, *more.__fields__)(*row, *more))
    return [row for row in found if row.op is not None]


def _in_spark(spark: SparkSession, format: str, groups: Mapping[str, list[Sample]]) -> list[Any]:
    """The same by one job."""
    frames: list[DataFrame] = []
    for options, samples in groups.items():
        given = with_registry(format, json.loads(options))
        messages = local_rows(spark, [sample.message for sample in samples], DDL).coalesce(1)
        rows = headrace.decode(messages, format=format, **given)
        frames.append(rows.selectExpr("*", "unix_millis(event_time) as event_ms", "map_keys(key) as key_names"))
    all_rows = frames[0]
    for frame in frames[1:]:
        all_rows = all_rows.unionByName(frame)
    return sorted(all_rows.collect(), key=lambda row: row.position)


@pytest.mark.parametrize("format", formats_with_samples())
def test_samples_give_the_rows_that_they_mean(request: pytest.FixtureRequest, format: str) -> None:
    rows = decoded_samples(request, format)
    wrong = {sample.case: difference(sample, rows[sample.number]) for sample in samples_of(format)}
    assert {case: why for case, why in wrong.items() if why} == {}
