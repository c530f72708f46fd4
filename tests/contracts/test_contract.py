"""A contract suite that lacks something refuses to be defined, so that nothing is left out in silence."""

from __future__ import annotations

import pytest

from headrace.testing import FormatContract


def test_a_class_of_tests_without_its_hook_is_refused() -> None:
    with pytest.raises(TypeError, match=r"TestMine lacks format\. Define what FormatContract describes\."):
        type("TestMine", (FormatContract,), {})


def test_what_several_classes_of_tests_share_may_lack_a_hook() -> None:
    assert type("OurFormat", (FormatContract,), {})


def test_a_gap_that_names_no_test_is_refused() -> None:
    with pytest.raises(TypeError, match="gaps that name no test of its suite: test_nothing"):
        type("OurFormat", (FormatContract,), {"gaps": {"test_nothing": "why"}})
