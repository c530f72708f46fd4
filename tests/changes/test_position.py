"""Rule: the order of positions is the order of their texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes.position import SNAPSHOT_ORDER, Position

parts = st.text("0123456789abcdef:rz", max_size=6)
positions = st.builds(Position, parts, parts, parts)


@given(positions, positions)
def test_text_order_is_the_order_of_the_parts(one, two):
    assert (one.text < two.text) == ((one.commit, one.order, one.sub) < (two.commit, two.order, two.sub))
    assert (one < two) == (one.text < two.text)


@given(positions)
def test_a_position_comes_back_from_its_text(position):
    assert Position.parse(position.text) == position


@pytest.mark.parametrize("part", ["A", "1/2", "é", "-1", " "])
def test_a_part_that_would_break_the_order_is_refused(part):
    with pytest.raises(ValueError, match="a position's part"):
        Position("00", part)


def test_a_row_read_at_a_commit_comes_after_its_changes_and_before_the_next_commit():
    commit, following = "00000027:00000758:0005", "00000027:00000758:0006"
    change = Position(commit, "ffffffff:ffffffff:ffffffff:ffff", "4")
    read = Position(commit, SNAPSHOT_ORDER + "00000:00000000", "00000000")
    assert change < read < Position(following)
