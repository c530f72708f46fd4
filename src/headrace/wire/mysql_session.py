"""What a session of MySQL or MariaDB sets so that a SELECT gives all its rows, as they are now, however long it takes.

An administrator limits sessions globally, in the option file, or for a login. What a session sets itself goes before
all of these.
"""

from __future__ import annotations

WITHOUT_LIMITS = (
    # With big selects max_join_size means nothing.
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1"
    # The longest key is compared as a whole where it is sorted.
    ", max_sort_length = 4096"
    # A ROLLBACK would begin a transaction, or end the session.
    ", completion_type = 0"
    ", sql_quote_show_create = 1"
    # Servers read the comments that are for their kind and version.
    " /*M!100501 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0"
    ", idle_write_transaction_timeout = 0, tx_read_only = 0"
    # Tables with system versioning would be read as of a day in the past.
    ", system_versioning_asof = DEFAULT */"
    " /*!80000 , max_execution_time = 0, transaction_read_only = 0 */"
    # Another engine's copy of a table may be older.
    " /*!80013 , use_secondary_engine = OFF */"
    # Keys that the server makes are in the log, so the catalog has to show them.
    " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)
"""The assignments of a SET statement."""
