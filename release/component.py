"""A library that Headrace uses, with its licence in SPDX's words."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Component:
    """A library at one version.

    Args:
        purl: its package URL (`pkg:pypi/pyarrow@26.0.1`), which names it in the bill of materials.
        group: its Maven group; empty for a Python package.
        name: its name.
        version: its version; empty where this environment does not have it.
        licence: an SPDX expression.
        needed_by: what of Headrace needs it.
        sha256: of its file, where it is one.
        needs: the package URLs of what it needs itself.
    """

    purl: str
    group: str
    name: str
    version: str
    licence: str
    needed_by: tuple[str, ...]
    sha256: str = ""
    needs: tuple[str, ...] = ()


class Licences:
    """What `licences.toml` says: which licences are fine, what words mean, and what was decided for single packages."""

    def __init__(self, file: Path = Path(__file__).parent / "licences.toml") -> None:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        self._allowed = frozenset(said["allowed"])
        self._words: Mapping[str, str] = said["words"]
        self._packages: Mapping[str, Mapping[str, Any]] = said["packages"]
        self.contained = tuple(
            Component(one["purl"], "", name, one["version"], one["licence"], ("headrace (contained)",))
            for name, one in said["contained"].items()
        )
        """What is in Headrace's own distribution."""

    def of(self, name: str, declared: list[str]) -> str:
        """A package's licence.

        Args:
            name: the package's, as `licences.toml` has it.
            declared: what the package itself says, best first: SPDX expressions, classifiers, other words.

        Raises:
            SystemExit: nobody knows it.
        """
        if name in self._packages:
            return str(self._packages[name]["licence"])
        for words in declared:
            known = self._words.get(words, words)
            if self._is_expression(known):
                return known
        # Some packages put all their licences there, with every word.
        said = ", ".join(repr(textwrap.shorten(words, 80)) for words in declared)
        raise SystemExit(f"The licence of {name} is not known: it says {said}. Look it up, and write it into "
                         "release/licences.toml with the reason.")  # fmt: skip

    def refused(self, component: Component, name: str) -> bool:
        """Whether nobody decided that a package may be used."""
        return name not in self._packages and not self._is_allowed(component.licence)

    def _is_allowed(self, expression: str) -> bool:
        return any(all(part in self._allowed for part in every.split(" AND ")) for every in expression.split(" OR "))

    def _is_expression(self, words: str) -> bool:
        parts = [part for every in words.split(" OR ") for part in every.split(" AND ")]
        return all(part in self._allowed or part in self._words.values() for part in parts)
