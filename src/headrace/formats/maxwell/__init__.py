"""Maxwell's JSON: `format` is where it begins."""
