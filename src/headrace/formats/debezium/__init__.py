"""Debezium's change events: JSON to change rows."""
