"""How changes leave a database."""
