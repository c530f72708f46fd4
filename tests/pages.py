"""Pages of the documentation whose Python code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def run_page(spark: Any, page: str, blocks: int) -> dict[str, Any]:
    """Run the Python of a page, in order.

    Args:
        spark: the session of the suite, which the page gets too: a second one in the same process would be the first.
        page: its file, below docs.
        blocks: how many blocks it has, so that none is missed.

    Returns:
        The names that the page's code made.
    """
    names: dict[str, Any] = {}
    path = DOCS / page
    found = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == blocks
    for block in found:
        exec(compile(block, str(path), "exec"), names)
    assert names["spark"].sparkContext is spark.sparkContext
    return names
