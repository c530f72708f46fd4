"""The database files of a server's directory: which databases it has, and their names."""

from __future__ import annotations

import json
from pathlib import Path

SUFFIX = ".sqlite"
_NAMES = "databases.json"
"""Names of databases that differ from their files' names; a file beside them."""


def databases(directory: Path) -> dict[str, Path]:
    """The databases of a server, by name. A database has its file's name unless it was given another one."""
    found = {path.stem: path for path in directory.glob(f"*{SUFFIX}")}
    for name, file in _given(directory).items():
        path = directory / file
        found.pop(path.stem, None)
        if path.exists():
            found[name] = path
    return dict(sorted(found.items()))


def find(directory: Path, name: str) -> Path | None:
    return next((path for n, path in databases(directory).items() if n.lower() == name.lower()), None)


def name_of(path: Path) -> str:
    return next((n for n, file in _given(path.parent).items() if file == path.name), path.stem)


def give_name(path: Path, name: str) -> None:
    names = {n: file for n, file in _given(path.parent).items() if file != path.name and n.lower() != name.lower()}
    if name != path.stem or path.suffix != SUFFIX:
        names[name] = path.name
    (path.parent / _NAMES).write_text(json.dumps(names, indent=1), "utf-8")


def _given(directory: Path) -> dict[str, str]:
    path = directory / _NAMES
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}
