"""The Java libraries that Headrace has Spark's resolver download for the running release of Spark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from headrace.spark.jars import AVRO, BROKER, DELTA, ICEBERG, KAFKA, SQLITE, maven_jars
from release.component import Component, Licences

_SETS = {
    "headrace (Kafka)": (KAFKA,),
    "headrace (Delta)": (DELTA,),
    "headrace (Iceberg)": (ICEBERG,),
    "headrace (Avro)": (AVRO,),
    "headrace-emulators (broker)": (BROKER,),
    "tests (Iceberg's catalogue)": (SQLITE,),
}
_LICENCE = re.compile(r'<license name="([^"]+)"')


def java_libraries(licences: Licences) -> list[Component]:
    """All jars, each with its Maven coordinates; downloads those that are not here yet."""
    found: dict[Path, list[str]] = {}
    for name, coordinates in _SETS.items():
        for jar in maven_jars(coordinates):
            found.setdefault(jar, []).append(name)
    return sorted((_component(jar, by, licences) for jar, by in found.items()), key=lambda one: one.purl)


def _component(jar: Path, needed_by: Iterable[str], licences: Licences) -> Component:
    group, name, version, description = _coordinates(jar)
    said = description.read_text(encoding="utf-8")
    licence = licences.of(f"{group}:{name}", list(dict.fromkeys(_LICENCE.findall(said))))
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    purl = f"pkg:maven/{group}/{name}@{version}"
    return Component(purl, group, name, version, licence, tuple(needed_by), digest)


def _coordinates(jar: Path) -> tuple[str, str, str, Path]:
    """Group, name and version of a jar that Ivy fetched, and its description in Ivy's cache.

    Ivy calls the file `<group>_<name>-<version>.jar`, where each part may hold the marks between them.
    """
    cache = jar.parents[1] / "cache"
    for description in cache.glob("*/*/ivy-*.xml"):
        name, group = description.parent.name, description.parents[1].name
        version = description.stem.removeprefix("ivy-")
        if jar.name == f"{group}_{name}-{version}.jar":
            return group, name, version, description
    raise SystemExit(f"Ivy's cache {cache} does not describe {jar.name}. Remove both, and run make setup again.")
