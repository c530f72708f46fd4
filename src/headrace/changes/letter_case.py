"""Spark SQL for words of fixed spelling (operations, types, connectors) in one case.

Spark's own `lower` and `upper` load all of Unicode's case mappings when a JVM first calls them: seconds of its first
batch, ten on a cold machine. The letters A to Z are all that such words have.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase


def lower(text: str) -> str:
    """Spark SQL for a text whose letters A to Z are small; all others stay as they are."""
    return f"translate({text}, '{ascii_uppercase}', '{ascii_lowercase}')"


def upper(text: str) -> str:
    """Spark SQL for a text whose letters a to z are capitals; all others stay as they are."""
    return f"translate({text}, '{ascii_lowercase}', '{ascii_uppercase}')"
