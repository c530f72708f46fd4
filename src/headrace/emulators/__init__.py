"""The name that `headrace_emulators` had. It works until 0.3 and warns."""

import warnings

import headrace_emulators

__path__ = [*__path__, *headrace_emulators.__path__]

warnings.warn(
    "headrace.emulators is now headrace_emulators. Import it from there before 0.3.", FutureWarning, stacklevel=2
)
