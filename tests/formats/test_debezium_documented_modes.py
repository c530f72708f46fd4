"""Rule: handling modes write the types that the connector's documentation lists, also where no recording shows them."""

from __future__ import annotations

import json
from typing import Any

import debezium_recordings as recordings
import pytest

from headrace.changes import TableSchema

ALL_TYPES = recordings.tables()["all_types", "CREATE"]
CONNECT = "org.apache.kafka.connect.data.Timestamp"


def message(*names: str, **options: Any) -> Any:
    """The message of the first recorded row of all_types, with its id and these columns."""
    kept = ("id", *names)
    first = next(event for event in recordings.events("3.6.1") if "all_types" in event["topic"])
    table = TableSchema(ALL_TYPES.id, tuple(c for c in ALL_TYPES.columns if c.name in kept), ("id",))
    ((row, _),) = recordings.changes([first])
    row |= {"after": {name: row["after"][name] for name in kept}, "schema_id": table.fingerprint}
    (found,) = recordings.encoded([row], [table], topic_prefix="server1", include_schema_changes=False, **options)
    return found


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (
            {"time.precision.mode": "connect"},
            {"c_datetime": ("int64", CONNECT, -6847804800000), "c_smalldatetime": ("int64", CONNECT, 3453321540000)},
        ),
        (
            {"decimal.handling.mode": "double"},
            {
                "c_numeric": ("double", None, 99999999.99),
                "c_decimal": ("double", None, -1234567890123.12345),
                "c_smallmoney": ("double", None, -214748.3648),
                "c_money": ("double", None, 922337203685477.5807),
            },
        ),
        (
            {"decimal.handling.mode": "string"},
            {
                "c_numeric": ("string", None, "99999999.99"),
                "c_decimal": ("string", None, "-1234567890123.12345"),
                "c_smallmoney": ("string", None, "-214748.3648"),
                "c_money": ("string", None, "922337203685477.5807"),
            },
        ),
    ],
    ids=["connect", "double", "string"],
)
def test_every_type_of_a_mode_is_as_documented(options: dict[str, str], columns: dict[str, Any]) -> None:
    value = json.loads(message(*columns, schemas_enable=True, **options).value)
    fields = {field["field"]: field for field in value["schema"]["fields"][1]["fields"]}
    assert {
        name: (fields[name]["type"], fields[name].get("name"), value["payload"]["after"][name]) for name in columns
    } == columns


@pytest.mark.parametrize(("key", "value"), [(True, False), (False, True)])
def test_keys_and_values_have_schemas_each_as_asked(key: bool, value: bool) -> None:
    options = {"key.converter.schemas.enable": key, "value.converter.schemas.enable": value}
    found = message("c_int", **options)
    assert ["schema" in json.loads(part) for part in (found.key, found.value)] == [key, value]
