"""Columns of MySQL and MariaDB as schema changes tell them: in the words of the statement that made them.

Source: recorded events of the MariaDB connector 3.0.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_JDBC_TYPES = {
    -7: "bit", -5: "bigint", -3: "varbinary", -2: "binary", 1: "char enum set", 3: "decimal", 4: "mediumint int year",
    5: "tinyint smallint", 6: "float", 8: "double", 12: "varchar tinytext text mediumtext longtext", 91: "date",
    92: "time", 93: "datetime", 2004: "tinyblob blob mediumblob longblob", 2014: "timestamp",
}  # fmt: skip
_JDBC_TYPE = {word: number for number, words in _JDBC_TYPES.items() for word in words.split()}
_OTHER = 1111
_SIZE = re.compile(r"\s*\([^)]*\)")
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


def told_column(column: Mapping[str, Any], connector: str) -> dict[str, Any]:
    """A column's JSON, as its connector writes it.

    Args:
        column: as its table's JSON has it.
        connector: `mysql` or `mariadb`.
    """
    native = _SIZE.sub("", column["typeName"]).upper()
    if native == "JSON" and connector == "mariadb":
        # A JSON column is a longtext with a check.
        native = "LONGTEXT"
    word = native.partition(" ")[0].lower()
    length, scale, labels = column["length"], column["scale"], column["enumValues"]
    if word in ("time", "datetime", "timestamp"):
        length, scale = scale or None, None
    elif word in ("enum", "set"):
        # How many characters of one letter each and of commas a value has.
        length = 1 if word == "enum" else max(2 * len(labels or ()) - 1, 0)
    elif word == "year":
        length = 4
    quoted_labels = None if labels is None else ["'" + label.replace("'", "''") + "'" for label in labels]
    default = column["defaultValueExpression"]
    quoted = None if default is None else _QUOTED.fullmatch(default)
    return {
        **column,
        "jdbcType": _JDBC_TYPE.get(word, _OTHER),
        "nativeType": None,
        "typeName": native,
        "typeExpression": native,
        "length": length,
        "scale": scale,
        "generated": column["autoIncremented"],
        "defaultValueExpression": default if quoted is None else quoted[1].replace("''", "'"),
        "enumValues": quoted_labels,
    }
