"""SharePlex's JSON: `format` is where it begins."""
