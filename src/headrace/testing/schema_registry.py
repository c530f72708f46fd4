"""The name that `headrace_emulators.schema_registry.server` had. It works until 0.3 and warns."""

from headrace.versions import warn_of_change
from headrace_emulators.schema_registry.server import SchemaRegistryServer

__all__ = ["SchemaRegistryServer"]

warn_of_change(
    "headrace.testing.schema_registry is now headrace_emulators.schema_registry.server. Import it from there"
    " before 0.3."
)
