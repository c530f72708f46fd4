"""The Python packages that the built wheels need, at the versions of this environment."""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.component import Component, Licences

_LEFT_OUT = frozenset(["dev"])
"""Extras of nobody who uses Headrace."""
_CLASSIFIER = "License :: "


def python_packages(wheels: Iterable[Path], licences: Licences) -> list[Component]:
    """Everything that the wheels need with all their extras, and what that needs in turn.

    Args:
        wheels: Headrace's own.
        licences: says what their licences are.
    """
    own = [_metadata(wheel) for wheel in wheels]
    names = {canonicalize_name(said["Name"]) for said in own}
    found: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    waiting = [(need, by) for said in own for need, by in _roots(said)]
    looked: set[tuple[str, frozenset[str], str]] = set()
    while waiting:
        need, by = waiting.pop()
        name = canonicalize_name(need.name)
        if name in names or (name, frozenset(need.extras), by) in looked:
            continue
        looked.add((name, frozenset(need.extras), by))
        found.setdefault(name, set()).add(by)
        for further in map(Requirement, _requires(name)):
            if not any(_holds(further, extra) for extra in ("", *need.extras)):
                continue
            needs.setdefault(name, set()).add(canonicalize_name(further.name))
            waiting.append((further, by))
    made = {name: _component(name, tuple(sorted(by)), licences) for name, by in found.items()}

    def purls(name: str) -> tuple[str, ...]:
        return tuple(sorted(made[need].purl for need in needs.get(name, ()) if need in made))

    return [replace(one, needs=purls(name)) for name, one in sorted(made.items())]


def _roots(said: Message) -> Iterator[tuple[Requirement, str]]:
    """What a wheel needs, and as what: by itself, or with an extra."""
    extras = sorted(set(said.get_all("Provides-Extra") or ()) - _LEFT_OUT)
    for need in map(Requirement, said.get_all("Requires-Dist") or ()):
        if _holds(need, ""):
            yield need, said["Name"]
            continue
        for extra in extras:
            if _holds(need, extra):
                yield need, f"{said['Name']}[{extra}]"


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def _holds(need: Requirement, extra: str) -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def _requires(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        # A driver that development does without.
        return []


def _component(name: str, needed_by: tuple[str, ...], licences: Licences) -> Component:
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return Component(f"pkg:pypi/{name}", "", name, "", licences.of(name, []), needed_by)
    classifiers = [text for text in said.get_all("Classifier") or [] if text.startswith(_CLASSIFIER)]
    declared = [said["License-Expression"], said["License"], *(text.rsplit(" :: ", 1)[-1] for text in classifiers)]
    licence = licences.of(name, [words for words in declared if words])
    return Component(f"pkg:pypi/{name}@{said['Version']}", "", name, said["Version"], licence, needed_by)
