"""Rule: the text of a key is Spark's JSON of its canonical texts, whichever way it was made."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes.texts import key_text, key_texts


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (["1005"], '["1005"]'),
        (["é", None], '["é",null]'),
        (['a"b\\c'], '["a\\"b\\\\c"]'),
        (["\x1f\n\t"], '["\\u001F\\n\\t"]'),
        ([], "[]"),
    ],
)
def test_a_key_has_one_text(key, text):
    assert key_text(key) == text
    assert json.loads(text) == key


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.text()), min_size=1, max_size=10))
def test_whole_columns_have_the_same_text_as_single_keys(keys):
    columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    assert key_texts(columns).to_pylist() == [key_text(key) for key in keys]
