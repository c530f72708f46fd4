"""Alibaba DTS's Avro: `format` is where it begins."""
