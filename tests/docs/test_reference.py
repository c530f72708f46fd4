"""Rule: the generated reference pages say what the code declares, no more and no less."""

import importlib.util
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "docs" / "generate_reference.py"


def test_the_options_page_equals_the_code():
    spec = importlib.util.spec_from_file_location("generate_reference", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for page, render in module.PAGES.items():
        assert page.read_text(encoding="utf-8") == render(), f"{page.name}: run python docs/generate_reference.py"
