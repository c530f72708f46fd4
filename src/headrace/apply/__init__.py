"""What a change means for a table: the order of changes, the fold to one row per key, truncation, tables without a key.

Nothing here knows where the table lies. A sink surveys a batch (`survey`), folds each table of it (`fold`, `keyless`)
and carries the folded rows out in one commit.
"""

from headrace.apply.carry import carried
from headrace.apply.change_log import change_log
from headrace.apply.fold import fold, upserts
from headrace.apply.keyless import fold_keyless
from headrace.apply.parts import parted
from headrace.apply.sequence import disordered, no_order, sequenced
from headrace.apply.survey import TableBatch, survey, under_new_names

__all__ = [
    "TableBatch",
    "carried",
    "change_log",
    "disordered",
    "fold",
    "fold_keyless",
    "no_order",
    "parted",
    "sequenced",
    "survey",
    "under_new_names",
    "upserts",
]
