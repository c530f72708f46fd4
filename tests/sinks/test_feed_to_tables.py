"""The tutorial from a feed to tables runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "feed_to_tables.md"


def test_the_tutorials_code_runs_as_it_stands(spark: Any) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        # The session of the suite, because a second one in the same process would be the first one anyway.
        exec(compile(block, str(TUTORIAL), "exec"), names)
    assert names["spark"].sparkContext is spark.sparkContext
