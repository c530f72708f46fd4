"""What all contract suites have: gaps that are declared in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest


class Contract:
    """A suite of promises. A subclass in a test file gives its hooks, and pytest runs the suite on it."""

    gaps: ClassVar[Mapping[str, str]] = {}
    """What can't be kept: the test's name, and the reason. Such a test must fail, so that a closed gap is noticed."""

    @pytest.fixture(autouse=True)
    def declared_gap(self, request: pytest.FixtureRequest) -> None:
        """Expect a test to fail whose promise is declared as a gap."""
        why = self.gaps.get(request.node.originalname)
        if why:
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))

    def __init_subclass__(cls) -> None:
        """Refuse gaps that name no test, and a class of tests without a hook, which pytest would leave out in silence.

        Raises:
            TypeError: a gap names no test of this suite, or a class that pytest runs lacks a hook.
        """
        super().__init_subclass__()
        unknown = [name for name in cls.gaps if not hasattr(cls, name)]
        if unknown:
            raise TypeError(f"{cls.__name__} declares gaps that name no test of its suite: {', '.join(unknown)}.")
        # Not an ABC: pytest does not collect those.
        missing = [name for name in dir(cls) if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if missing and cls.__name__.startswith("Test"):
            raise TypeError(
                f"{cls.__name__} lacks {', '.join(missing)}. Define what {cls.__mro__[1].__name__} describes."
            )
