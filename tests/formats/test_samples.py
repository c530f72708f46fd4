"""Every format reads its golden samples as the rows that they mean.

A format joins by its folder alone (`samples.py` says what is in it); no test code is needed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from samples import Sample, difference, formats_with_samples, registry_of, samples_of

import headrace
from headrace.formats.messages import KAFKA_COLUMNS
from headrace.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())


def decoded_samples(spark: SparkSession, format: str) -> dict[int, list[Any]]:
    """The rows by sample number, decoded by one job: samples of the same options together, sequences in order."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples_of(format):
        groups[json.dumps(sample.options, sort_keys=True)].append(sample)
    registry = registry_of(format)
    frames: list[DataFrame] = []
    for options, samples in groups.items():
        given = json.loads(options)
        if registry is not None and (given.get("framing") or format.startswith("debezium")):
            given["registry"] = registry
        messages = local_rows(spark, [sample.message for sample in samples], DDL).coalesce(1)
        rows = headrace.decode(messages, format=format, **given)
        frames.append(rows.selectExpr("*", "unix_millis(event_time) as event_ms", "map_keys(key) as key_names"))
    all_rows = frames[0]
    for frame in frames[1:]:
        all_rows = all_rows.unionByName(frame)
    found: dict[int, list[Any]] = defaultdict(list)
    for row in sorted(all_rows.collect(), key=lambda row: row.position):
        found[row.message.offset].append(row)
    return found


@pytest.mark.parametrize("format", formats_with_samples())
def test_samples_give_the_rows_that_they_mean(spark: SparkSession, format: str) -> None:
    rows = decoded_samples(spark, format)
    wrong = {sample.case: difference(sample, rows[sample.number]) for sample in samples_of(format)}
    assert {case: why for case, why in wrong.items() if why} == {}
