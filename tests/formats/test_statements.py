"""Rule: consumers execute the statements of DDL events, so that a change of structure of which the source has no
statement is no event."""

from __future__ import annotations

from typing import Any

import pytest
from codec_rows import as_kafka, change_batch, change_rows, sent

FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("canal_json", {}),
    ("canal_json", {"flavour": "dts"}),
    ("dts_avro", {}),
    ("maxwell_json", {}),
]


@pytest.mark.parametrize(("format", "options"), FORMATS, ids=str)
def test_only_statements_that_a_source_has_become_events(format: str, options: dict[str, Any]) -> None:
    ddl = ("alter table t add c int", "N/A", None)
    rows = [
        {
            "op": "schema",
            "position": f"{n}/1/",
            "table": {"database": "d", "schema": "dbo", "name": "t"},
            "source": {"connector": "sqlserver", "change": "ALTER"} | ({"ddl": text} if text else {}),
        }
        for n, text in enumerate(ddl)
    ]
    messages = sent(format, change_batch(rows), **options)
    [found] = change_rows(format, as_kafka(messages))
    assert found["op"] == "schema" and dict(found["source"])["ddl"] == ddl[0]
