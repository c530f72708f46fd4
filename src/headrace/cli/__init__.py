"""The command line, `headrace`: one file per command.

A user error is one sentence on stderr and exit code 2; only `--debug` prints the stack trace. Exit code 1 means that a
mirror differs, that a status needs attention, or that an unexpected error occurred. A command imports only what it
needs.
"""

from headrace.cli.app import main

__all__ = ["main"]
