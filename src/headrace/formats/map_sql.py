"""Spark SQL for JSON texts, for the formats that are still made of it."""

from __future__ import annotations


def json_text(text: str) -> str:
    """Spark SQL for a text as a JSON string; null stays null."""
    escaped = f"to_json(array({text}))"
    return (
        rf"if({text} rlike '[\"\\\\\\x00-\\x1f]', substr({escaped}, 2, length({escaped}) - 2), "
        rf"concat('\"', {text}, '\"'))"
    )
