"""A real PostgreSQL server on this machine, and the shop in it."""
