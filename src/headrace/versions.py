"""What this release reads of what other releases left, and names that go with a later release.

What Headrace keeps between runs (offsets, its files in a checkpoint, targets) has a format version, a whole number that
is raised only when an earlier release would read it wrong. Beside that, every part has a name, and a release stops at a
name that it does not know: whoever adds one need not raise the number. So a release reads what any earlier one left,
and refuses what only a later one understands instead of guessing (docs/decisions/0032).

A name that users write down (an option, a module) goes in two steps: one release warns, a later one refuses it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable
from typing import Any

from headrace.errors import HeadraceDeprecationWarning, NewerRelease

__version__ = "0.2.0.dev0"
"""This release. It stands here and nowhere else: both distributions are built with it (CONTRIBUTING.md)."""

GO_BACK = "'Go back to an earlier release' in docs/upgrades.md says when that is possible."
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def require_readable(number: Any, newest: int, *, what: str, remedy: str) -> None:
    """Stop at a format version that only a later release reads.

    Args:
        number: the version; None where an earlier release left none, which is version 1.
        newest: the newest that this release reads.
        what: the thing, as the beginning of a sentence.
        remedy: what the user can do.

    Raises:
        NewerRelease: a later release wrote it.
        ValueError: it is not a version.
    """
    if number is None:
        return
    version = int(number)
    if version > newest:
        raise NewerRelease(
            f"{what} has format version {version}, and Headrace {__version__} reads versions up to {newest}: "
            "a later release wrote it.",
            remedy=f"{remedy} {GO_BACK}",
        )


def require_known(names: Iterable[str], known: Collection[str], *, what: str, remedy: str) -> None:
    """Stop at a name that only a later release understands.

    Args:
        names: what is there.
        known: what this release and earlier ones write.
        what: the thing, as the beginning of a sentence.
        remedy: what the user can do.

    Raises:
        NewerRelease: a later release wrote it.
    """
    unknown = sorted(name for name in names if name not in known)
    if unknown:
        raise NewerRelease(
            f"{what} has '{unknown[0]}', which Headrace {__version__} does not know: a later release wrote it.",
            remedy=f"{remedy} {GO_BACK}",
        )


def is_gone(until: str) -> bool:
    """Whether this release no longer has what works until a release (`0.4`): that one, and every later one."""
    return _numbers(until) <= _numbers(__version__)


def warn_of_change(sentence: str, *, stacklevel: int = 2) -> None:
    """Warn users of a name that goes, with one sentence that says what to use and until when.

    Args:
        sentence: what they read.
        stacklevel: see `warnings.warn`, counted from the caller.
    """
    warnings.warn(sentence, HeadraceDeprecationWarning, stacklevel=stacklevel + 1)


def _numbers(version: str) -> tuple[int, int]:
    match = _NUMBERS.match(version)
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    return int(match[1]), int(match[2])
