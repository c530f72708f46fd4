"""Advice to users of Db2."""

from __future__ import annotations

from headrace.sources.change_tables.dialect import Advice

ADVICE = Advice(
    capture="Register and activate it with SQL Replication (ASNCDC.ADDTABLE, STATE 'A' and reinit)",
    enable="Register it with SQL Replication (ASNCDC.ADDTABLE), activate it",
    keep="let the Capture program keep changes for longer (RETENTION_LIMIT in IBMSNAP_CAPPARMS, AUTOPRUNE)",
    watch="the Capture program (asncap) runs",
)
