"""Write `docs/reference/options.md` from the options that the code declares. A test holds the page against the code.

python docs/generate_reference.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace import registry
from headrace.options import Option

PAGE = Path(__file__).parent / "reference" / "options.md"
_HEAD = """# Options

Generated from the code by `python docs/generate_reference.py`; do not edit.

An option has one name. It is accepted in snake case (YAML, Python), in camelCase (`spark.readStream.option`) and under
the other names of its row. An unknown name is an error that tells the nearest known one. Values of options whose name
says password, secret or token are never shown.
"""


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for kind in ("source", "format", "sink"):
        for name in registry.built_in_names(kind):
            owner = registry.find(kind, name)
            parts.append(f"\n## {kind.capitalize()} `{name}`\n")
            parts.append(f"\n{_first_line(owner)}\n")
            parts.append("\n| option | also | type | default | meaning |\n|---|---|---|---|---|\n")
            parts.extend(_row(option) for option in owner.options)
    return "".join(parts)


def _first_line(owner: type[Any]) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0]


def _row(option: Option) -> str:
    also = ", ".join(f"`{alias}`" for alias in option.aliases)
    kind = " \\| ".join(f"`{c}`" for c in option.choices) or getattr(option.kind, "__name__", "text")
    default = "**required**" if option.required else _shown(option.default)
    text = option.doc.replace("|", "\\|")
    return f"| `{option.name}` | {also} | {kind} | {default} | {text} |\n"


def _shown(default: Any) -> str:
    if default in ("", None, ()):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, (tuple, list, frozenset)):
        return "`" + ",".join(map(str, default)) + "`"
    return f"`{default}`"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
