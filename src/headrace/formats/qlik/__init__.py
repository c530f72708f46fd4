"""Qlik Replicate's messages, as JSON and as Avro: `format` is where it begins."""
