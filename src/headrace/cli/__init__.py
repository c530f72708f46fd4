"""The command line, `headrace`: one file per command.

A mistake of the user's is one sentence on stderr and exit code 2, with the stack trace only under `--debug`; 1 is for a
demo whose mirror differs, a status that needs somebody, and for what nobody expected. What is not needed for a command
is not imported.
"""

from headrace.cli.app import main

__all__ = ["main"]
