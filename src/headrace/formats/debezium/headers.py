"""The headers of messages: the context of the connector, the other key of a changed one, a flat row's operation."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.change_messages import quoted
from headrace.formats.codec import MESSAGES
from headrace.wire.arrays import offsets_of

_CONTEXT = "__debezium.context."
_TYPE = MESSAGES.field("headers").type
_WORDS = ("connectorLogicalName", "taskId", "connectorName", "runId")
_NAME = _WORDS.index("connectorName")


class ContextHeaders:
    """Columns of headers with the context of shape 3.

    Args:
        prefix: the server's logical name.
        run_id: what stands for the run.
    """

    def __init__(self, prefix: str, run_id: str) -> None:
        self._values = [_text(json.dumps(text)) for text in (prefix, "0", "", run_id)]
        self._same: dict[str, pa.StructArray] = {}

    def column(
        self, connector: str | pa.DictionaryArray, keys: Sequence[tuple[str, str] | None] | None, count: int
    ) -> pa.ListArray:
        """The headers of messages.

        Args:
            connector: the name of the connector, or of each message's.
            keys: for each message the name and text of a header in front, if it has one.
            count: how many messages there are.
        """
        if isinstance(connector, str) and keys is None:
            entries = self._same.get(connector)
            if entries is None or len(entries) < count * len(_WORDS):
                entries = self._same[connector] = _entries([self._of(json.dumps(connector))] * max(count, 4_096))
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(_WORDS))
            return pa.ListArray.from_arrays(pa.array(offsets), entries.slice(0, count * len(_WORDS)), type=_TYPE)
        names = [connector] * count if isinstance(connector, str) else connector.to_pylist()
        context = {name: self._of(quoted(name or "")) for name in set(names)}
        lists = []
        for n, name in enumerate(names):
            key = None if keys is None else keys[n]
            lists.append(context[name] if key is None else [(key[0], key[1].encode()), *context[name]])
        offsets = offsets_of(np.array([len(headers) for headers in lists], np.int64))
        return pa.ListArray.from_arrays(pa.array(offsets), _entries(lists), type=_TYPE)

    def _of(self, connector: str) -> list[tuple[str, bytes]]:
        values = [*self._values]
        values[_NAME] = _text(connector)
        return [(f"{_CONTEXT}{word}", value) for word, value in zip(_WORDS, values, strict=True)]


def _text(json_text: str) -> bytes:
    return f'{{"schema":{{"type":"string","optional":false}},"payload":{json_text}}}'.encode()


def _entries(lists: Sequence[Sequence[tuple[str, bytes]]]) -> pa.StructArray:
    every = [entry for entries in lists for entry in entries]
    columns = [pa.array([name for name, _ in every], pa.string()), pa.array([value for _, value in every], pa.binary())]
    return pa.StructArray.from_arrays(columns, fields=list(_TYPE.value_type))


def header_words(headers: pa.ListArray, name: str) -> pa.StringArray:
    """The texts of the last header of that name that each message has; null where it has none.

    Connect's converters write a text bare, quoted, or wrapped with its schema.
    """
    count = len(headers)
    entries = headers.flatten()
    rows = np.flatnonzero(pc.fill_null(pc.equal(entries.field("key"), name), False).to_numpy(zero_copy_only=False))
    row = np.repeat(np.arange(count), pc.fill_null(pc.list_value_length(headers), 0).to_numpy())[rows]
    values = entries.field("value").take(pa.array(rows)).dictionary_encode()
    words = pa.array([_word(value) for value in values.dictionary.to_pylist()], pa.string()).take(values.indices)
    index = np.full(count, -1, np.int64)
    index[row] = np.arange(row.size)
    return words.take(pa.array(index, mask=index < 0))


def _word(value: bytes) -> str:
    text = value.decode(errors="replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(parsed, dict):
        parsed = parsed.get("payload")
    return parsed if isinstance(parsed, str) else text
