"""Rule: the documentation builds into a site without a dead link, that loads nothing from elsewhere, and that a list
for machines describes."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    return folder


def test_a_page_of_the_site_is_made_from_each_file(site: Path) -> None:
    pages = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")}
    made = {page.parent / "index" if page.name == "README.md" else page.with_suffix("") for page in pages}
    assert {page for page in made if not (site / page).with_suffix(".html").exists()} == set()


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ("<script defer src=//cdn.example/x.js></script>", ["//cdn.example/x.js"]),
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ("@import 'https://fonts.example/css'; p { background: url(//img.example/a.png) }",
         ["https://fonts.example/css", "//img.example/a.png"]),
        ('<script src="../assets/x.js"></script> <a href="https://spark.example/">Spark</a>', []),
        ('<link rel="canonical" href="https://headrace.example/">', []),
    ],
)  # fmt: skip
def test_the_build_sees_what_a_page_would_load_from_elsewhere(text: str, loaded: list[str]) -> None:
    assert hooks.loads(text) == loaded


def test_the_list_for_machines_has_each_page_with_a_sentence(site: Path) -> None:
    entries = re.findall(r"^- \[.+?\]\((\S+)\): (.+)$", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html"}
    assert {page for page, _ in entries} == pages
    assert [page for page, sentence in entries if len(sentence) < 12] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"""(?:\]\(|src(?:set)?=")([^)#\s":]+)(?=[)#"])""", readme)
    assert len(targets) > 30
    assert [target for target in targets if not (ROOT / target).is_file()] == []
    assert len(readme.splitlines()) < 120


def test_figures_beside_others_are_those_of_the_benchmarks() -> None:
    compared = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8").partition("## Features")[0]
    measured = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    figures = re.findall(r"(?<=\| )\**(\d[\d.,]*(?: s)?)\**(?= \|)", compared)
    assert len(figures) >= 30
    assert [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", measured)] == []
