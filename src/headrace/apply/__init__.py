"""What a change means for a table: the order of changes, the fold to one row per key, truncation, tables without a key.

Nothing here knows where the table is stored. A sink profiles a batch (`profile`), folds each of its tables (`fold`,
`keyless`) and writes the folded rows in one commit.
"""

from headrace.apply.carry import carried
from headrace.apply.change_log import change_log
from headrace.apply.fold import fold, fold_keyless, upserts
from headrace.apply.parts import in_one_task, kept_bytes, parted
from headrace.apply.profile import TableProfile, as_newest, profile
from headrace.apply.sequence import disordered, no_order, sequenced

__all__ = [
    "TableProfile",
    "as_newest",
    "carried",
    "change_log",
    "disordered",
    "fold",
    "fold_keyless",
    "in_one_task",
    "kept_bytes",
    "no_order",
    "parted",
    "profile",
    "sequenced",
    "upserts",
]
