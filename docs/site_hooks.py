"""What MkDocs does besides building pages: `make docs` (mkdocs.yml) calls these by their names.

- CHANGELOG.md and CONTRIBUTING.md, which stand above `docs`, become pages. A link to another file above it becomes its
  text, or a link into the repository where mkdocs.yml names one (`repo_url`): links serve readers on a Git host, too.
- Each decision gets its place in the navigation.
- `llms.txt` lists the pages, each with its first sentence.
- A page that would load something from elsewhere ends the build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ABOVE = ("CHANGELOG.md", "CONTRIBUTING.md")

# Warnings end a strict build.
log = logging.getLogger("mkdocs.hooks.headrace")
_FENCED = re.compile(r"^( *)(```+).*?^ *\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\[\]]+)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
_LOAD = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\ssrc=["']?((?:\w+:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|next|prev)\b)[^>]*?\shref=["']?((?:\w+:)?//[^"'\s>]+)"""
    r"""|@import\s+["']((?:\w+:)?//[^"']+)|url\(["']?((?:\w+:)?//[^"')]+)"""
)
_pages: list[Page] = []


def on_config(config: MkDocsConfig) -> None:
    """List the decisions where the navigation has their section."""
    decisions = next(entry["Decisions"] for entry in config.nav if "Decisions" in entry)
    decisions += [f"decisions/{page.name}" for page in sorted((DOCS / "decisions").glob("[0-9]*.md"))]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that stand above `docs`."""
    for name in ABOVE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Turn links that lead out of `docs`, or come from above it."""
    source = Path(page.file.abs_src_path)

    def turned(link: re.Match[str]) -> str:
        image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        there = Path(os.path.normpath(source.parent / target))
        if not there.exists():
            # MkDocs names the page and the link.
            return link[0]
        if there.parent == ROOT and there.name in ABOVE:
            there = DOCS / there.name
        if there.is_relative_to(DOCS):
            return f"{image}[{text}]({os.path.relpath(there, (DOCS / page.file.src_uri).parent)}{anchor})"
        return f"[{text}]({config.repo_url.rstrip('/')}/{there.relative_to(ROOT)})" if config.repo_url else text

    parts, end = [], 0
    for fenced in _FENCED.finditer(markdown):
        parts += [_LINK.sub(turned, markdown[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join([*parts, _LINK.sub(turned, markdown[end:])])


def on_nav(nav: Navigation, **_: Any) -> None:
    """Remember the pages in the order of the navigation."""
    _pages[:] = nav.pages


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`, and look at what the site would load."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = None
    for page in _pages:
        top = page.ancestors[-1].title if page.ancestors else config.site_name
        if top != section:
            lines += ["", f"## {top}", ""]
            section = top
        lines.append(f"- [{page.title}]({page.url}): {first_sentence(page.markdown or '')}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for file in sorted(site.rglob("*")):
        if file.suffix in {".html", ".css"} and (found := loads(file.read_text(encoding="utf-8"))):
            log.warning("%s loads from elsewhere: %s", file.relative_to(site), ", ".join(found))


def loads(text: str) -> list[str]:
    """What a page or a style sheet loads from other servers."""
    return ["".join(found) for found in _LOAD.findall(text)]


def first_sentence(markdown: str) -> str:
    """The first sentence of a page, without marks."""
    paragraphs = re.split(r"\n\s*\n", _FENCED.sub("", markdown))
    plain = (part.strip() for part in paragraphs if not re.match(r"\s*(#|<|\||!|- |$|---)", part))
    text = re.sub(r"\s+", " ", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", next(plain, ""))).replace("**", "")
    # "Decision." alone says nothing.
    found = re.match(r".{12,}?[.!?](?= |$)", text)
    return found[0] if found else text
