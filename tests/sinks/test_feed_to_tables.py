"""The tutorial from a feed to tables runs as it stands."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pages import run_page


@pytest.mark.system
@pytest.mark.usefixtures("generated_code")
def test_the_tutorials_code_runs_as_it_stands(spark: Any) -> None:
    run_page(spark, "tutorials/feed_to_tables.md", blocks=5)
