"""LogMiner's operation codes: what a mined row is."""

from __future__ import annotations

INSERT, DELETE, UPDATE = 1, 2, 3
DDL, START, COMMIT, MARKER, MISSING, ROLLBACK = 5, 6, 7, 27, 34, 36
UNSUPPORTED = 255
CHANGES = frozenset((INSERT, DELETE, UPDATE))
CONTROL = (START, COMMIT, MARKER, MISSING, ROLLBACK)
"""What begins and ends transactions; a marker means that one is a replication's."""
VALUE_BEGINS = frozenset((9, 68, 91))
VALUE_WRITES = frozenset((10, 70, 92))
VALUE_ENDS = frozenset((71, 93))
"""Large values come in pieces: a locator, writes, and for some kinds an end."""
VALUE_CUTS = frozenset((11, 28, 29))
"""What cuts or erases a part of a large value."""
PIECES = VALUE_BEGINS | VALUE_WRITES | VALUE_ENDS | VALUE_CUTS
