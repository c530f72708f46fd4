"""Holds the words of CONTRIBUTING.md: `python -m tests.glossary` names each word that the field does not use.

The table there has words in backticks, which no name in the code has as a part, and phrases in quotes, which no
docstring and no comment has.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = frozenset(["behind_seconds", "behind_messages", "behind_commits", "looked"])
"""Names of figures that users have in their boards, and one that contract suites of other packages set."""
_ROW = re.compile(r"\| (?P<not>[^|]+) \| (?P<but>[^|]+) \|")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def glossary(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Words and phrases that are not used, each with what is used instead."""
    table = text[text.index("| not | but |") :].partition("\n\n")[0]
    words: dict[str, str] = {}
    phrases: dict[str, str] = {}
    for row in _ROW.finditer(table):
        words |= dict.fromkeys(re.findall(r"`(\w+)`", row["not"]), row["but"].strip())
        phrases |= dict.fromkeys(re.findall(r'"([^"]+)"', row["not"]), row["but"].strip())
    return words, phrases


def uses(name: str, source: str, words: dict[str, str], phrases: dict[str, str]) -> Iterator[str]:
    """Yield a line for each use in a file, with file and line number."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        where = f"{name}:{token.start[0]}"
        if token.type == tokenize.NAME and token.string.strip("_") not in KEPT:
            for part in _PARTS.findall(token.string):
                if part.lower() in words:
                    yield f"{where}: '{token.string}' has '{part.lower()}'; the field says {words[part.lower()]}"
        elif token.type == tokenize.COMMENT or token.string.startswith('"""'):
            text = " ".join(token.string.split()).lower()
            for phrase, instead in phrases.items():
                if re.search(rf"\b{re.escape(phrase)}\b", text):
                    yield f'{where}: "{phrase}"; write {instead}'


def main() -> int:
    """Print all uses in `src`."""
    words, phrases = glossary((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    lines = [
        line
        for file in sorted((ROOT / "src").rglob("*.py"))
        for line in uses(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"), words, phrases)
    ]
    print("\n".join(lines) or f"None of {len(words)} words and {len(phrases)} phrases is used.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
