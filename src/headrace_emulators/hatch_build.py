"""What this distribution depends on, for the build: Headrace of its own version, and what `pyproject.toml` lists."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """Fills in `dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Headrace first, with what the demo needs of it."""
        metadata["dependencies"] = [f"headrace[delta,spark]=={metadata['version']}", *self.config["beside_headrace"]]
