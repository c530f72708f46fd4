"""Rule: the glossary of CONTRIBUTING.md is held: what it refuses is named, with what the field says."""

from __future__ import annotations

import pytest
from tests.glossary import ROOT, glossary, uses

WORDS, PHRASES = glossary((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_the_table_has_words_and_phrases():
    assert WORDS["outlet"] == "direct producer, delivery"
    assert PHRASES["anew"] == "again"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("class KafkaOutlet: ...", ["f.py:1: 'KafkaOutlet' has 'outlet'; the field says direct producer, delivery"]),
        ("\nTHE_NOTICES = 1", ["f.py:2: 'THE_NOTICES' has 'notices'; the field says marker rows"]),
        ("x = 1  # Begins anew.", ['f.py:1: "anew"; write again']),
        ('"""It asks\nnobody."""', ['f.py:1: "asks nobody"; write makes no request']),
        ("x = 'anew'", []),
        ("noticeable = behind_seconds = 1", []),
    ],
)
def test_what_is_refused_is_named_with_what_the_field_says(source, lines):
    assert list(uses("f.py", source, WORDS, PHRASES)) == lines
