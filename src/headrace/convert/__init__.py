"""Debezium configurations as pipelines."""
