"""Advice to users of SQL Server."""

from __future__ import annotations

from headrace.sources.change_tables.dialect import Advice

ADVICE = Advice(
    capture="Run EXEC sys.sp_cdc_enable_table",
    enable="Enable its change data capture (sys.sp_cdc_enable_table)",
    keep="give the clean-up job a longer retention (sys.sp_cdc_change_job)",
    watch="SQL Server Agent and the capture job run",
    see="the permission is VIEW DATABASE STATE",
)
