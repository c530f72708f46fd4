"""Tables of a database, reached by JDBC."""
