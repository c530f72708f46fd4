"""The name that `headrace_emulators.schema_registry.server` had."""

from headrace_emulators.schema_registry.server import SchemaRegistryServer

__all__ = ["SchemaRegistryServer"]
