"""The releases of Spark that Headrace runs on, and which Java libraries go with each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import OptionError

_VERSION = re.compile(r"""__version__\s*(?::\s*str\s*)?=\s*["']([0-9]+\.[0-9]+)""")


@dataclass(frozen=True)
class Release:
    """Maven coordinates for one release of Spark.

    Args:
        kafka: Spark's Kafka source and sink.
        avro: Spark's `from_avro` and `to_avro`.
        delta: Delta Lake; empty where there is none for this release.
        iceberg: Apache Iceberg; empty likewise.
    """

    kafka: str
    avro: str
    delta: str
    iceberg: str


def _release(spark: str, delta: str, iceberg: str) -> Release:
    return Release(
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
        f"org.apache.spark:spark-avro_2.13:{spark}",
        delta and f"io.delta:{delta}",
        iceberg and f"org.apache.iceberg:{iceberg}",
    )


RELEASES: Mapping[str, Release] = {
    "4.0": _release("4.0.0", "delta-spark_2.13:4.0.0", "iceberg-spark-runtime-4.0_2.13:1.10.1"),
    "4.1": _release("4.1.1", "delta-spark_4.1_2.13:4.2.0", "iceberg-spark-runtime-4.1_2.13:1.11.0"),
    "4.2": _release("4.2.0", "delta-spark_4.2_2.13:4.4.0", ""),
    # Its own Kafka and Avro libraries could not be downloaded where this was tested; those of 4.2.0 pass on it.
    "4.3": _release("4.2.0", "", ""),
}
"""By the first two numbers of the version."""


def release_of(version: str) -> Release:
    """What goes with a version of Spark.

    Raises:
        OptionError: Headrace does not run on it.
    """
    release = RELEASES.get(".".join(version.split(".")[:2]))
    if release is None:
        known = list(RELEASES)
        raise OptionError(
            f"Headrace does not run on Spark {version}, but on {', '.join(known[:-1])} and {known[-1]}.",
            remedy=f'Run: pip install "pyspark>={known[0]},<{known[-1]}.99"',
        )
    return release


def require_library(name: str, library: str, coordinate: str) -> None:
    """Refuse what needs a library of which there is no release for the running Spark.

    Args:
        name: of the library.
        library: which field of `Release` it is.
        coordinate: what is used; empty where nothing is.

    Raises:
        OptionError: there is none.
    """
    if not coordinate:
        having = [version for version, release in RELEASES.items() if getattr(release, library)]
        raise OptionError(
            f"{name} has no release for Spark {running_version()}.",
            remedy=f"Use Spark {', '.join(having[:-1])} or {having[-1]}, or name a jar that suits in "
            f"HEADRACE_{library.upper()}_PACKAGE.",
        )


def running_version() -> str:
    """The first two numbers of PySpark's version, read without importing it; those of the oldest release without it."""
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        file = Path(folder) / "version.py"
        match = _VERSION.search(file.read_text(encoding="utf-8")) if file.is_file() else None
        if match is not None:
            return match[1]
    return next(iter(RELEASES))
