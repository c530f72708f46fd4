"""Names that columns of sources have, and which targets take them."""

from __future__ import annotations

from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.jdbc.mariadb import MariaDbDialect
from headrace.sinks.jdbc.postgresql import PostgresDialect
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.iceberg.table import IcebergTable

RULES: dict[str, ColumnRules] = {
    "delta": DeltaTable.rules,
    "iceberg": IcebergTable.rules,
    "postgresql": PostgresDialect.rules,
    "mariadb": MariaDbDialect.rules,
}
ALL = tuple(RULES)
LAKES = ("delta", "iceberg")
DATABASES = ("postgresql", "mariadb")
ICEBERGS = ("_file", "_pos", "_partition", "_spec_id", "_deleted", "_row_id", "_last_updated_sequence_number")

TAKEN_BY: list[tuple[str, tuple[str, ...]]] = [
    # Names that Headrace's own SQL uses.
    *((name, ALL) for name in ("t", "T", "s", "row", "op", "position", "k0", "texts", "present", "at", "key", "start")),
    # Names that need quotes, and such as are something else elsewhere.
    *(
        (name, ALL)
        for name in ("a.b", "a`b", 'a"b', "it's", "back\\slash", "two\nlines", " lead", "%s", "{}", "$", "ü☃")
    ),
    *((name, ALL) for name in ("select", "_change_type", "${}", "${two words}", "row_index", "file_path", "\\u0024")),
    ("${spark.app.name}", ()),
    ("cost ${env:HOME}", ()),
    ("", ()),
    ("\ud800", ()),
    *((name, ("delta", *DATABASES)) for name in (*ICEBERGS, "_FILE", "_Row_ID", "_f\u0131le")),
    *((name, ("delta", *DATABASES)) for name in ("__row_operation", "__Row_From_Source", "__original_row_id__file")),
    *((name, ("iceberg", *DATABASES)) for name in ("_metadata", "_METADATA", "_row_dropped_", "_Source_row_present_")),
    *((name, (*LAKES, "mariadb")) for name in ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "ü" * 32)),
    *((name, ALL) for name in ("CTID", "oid", "x" * 63)),
    *((name, (*LAKES, "postgresql")) for name in ("DB_ROW_ID", "db_trx_id", "Db_Roll_Ptr", "fts_doc_id")),
    *((name, (*LAKES, "postgresql")) for name in ("trail ", "tab\t", "\U0001f600")),
    *((name, LAKES) for name in ("x" * 65, "y" * 300, "a\0b")),
]
NAMES = [name for name, _ in TAKEN_BY]
