"""What a table, topic or folder is called beyond one system: OpenLineage's names, under which tools of lineage meet."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Dataset:
    """A dataset by OpenLineage's naming rules.

    Args:
        namespace: the server or store: `postgres://db.example.com:5432`, `kafka://k1:9092`, `s3://bucket`, `file`.
        name: what it is called there: `shop.public.orders`, a topic, a path.
    """

    namespace: str
    name: str

    @classmethod
    def of_folder(cls, path: str) -> Dataset:
        """A folder on this machine, or in a store that a URL names."""
        scheme, separator, rest = path.partition("://")
        if not separator or scheme == "file":
            return cls("file", os.path.normpath(f"/{(rest or path.removeprefix('file:')).lstrip('/')}"))
        host, _, inside = rest.partition("/")
        # Hadoop's names of the same store.
        return cls(f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{host}", inside.strip("/") or "/")

    @classmethod
    def of_topic(cls, bootstrap_servers: str, topic: str) -> Dataset:
        """A topic of the Kafka whose brokers these are; the first one gives it its name."""
        first = bootstrap_servers.split(",")[0].strip()
        return cls(f"kafka://{first if ':' in first else f'{first}:9092'}", topic)
