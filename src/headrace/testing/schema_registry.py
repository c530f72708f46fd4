"""The name that `headrace_emulators.schema_registry.server` had. It works until 0.3 and warns."""

import warnings

from headrace_emulators.schema_registry.server import SchemaRegistryServer

__all__ = ["SchemaRegistryServer"]

warnings.warn(
    "headrace.testing.schema_registry is now headrace_emulators.schema_registry.server. Import it from there before"
    " 0.3.",
    FutureWarning,
    stacklevel=2,
)
