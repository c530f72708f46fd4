"""Oracle GoldenGate's JSON: `format` is where it begins."""
