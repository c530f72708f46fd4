"""Db2: changes from the change-data tables that SQL Replication's Capture program fills."""
