"""PostgreSQL by logical decoding."""
