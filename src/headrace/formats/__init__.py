"""How changes look on a wire."""
