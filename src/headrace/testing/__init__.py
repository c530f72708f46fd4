"""The name that `headrace_emulators.schema_registry` had. It works until 0.3 and warns."""

import warnings

warnings.warn(
    "headrace.testing.schema_registry is now headrace_emulators.schema_registry.server. Import it from there before"
    " 0.3.",
    FutureWarning,
    stacklevel=2,
)
