"""Rule: a spool gives what it was given, in its order, wherever it lay meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.sources.messages import Spool


@pytest.mark.parametrize("most", [0, 1, 100, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_batches_come_back_in_their_order(most: int, count: int) -> None:
    given = [pa.RecordBatch.from_pydict({"n": [n, None], "text": ["x" * n, None]}) for n in range(count)]
    with Spool(most) as spool:
        for batch in given:
            spool.add(batch)
        assert list(spool.all()) == given
