"""The name that `headrace_emulators` had. It works until 0.3 and warns."""

import headrace_emulators
from headrace.versions import warn_of_change

__path__ = [*__path__, *headrace_emulators.__path__]

warn_of_change("headrace.emulators is now headrace_emulators. Import it from there before 0.3.")
