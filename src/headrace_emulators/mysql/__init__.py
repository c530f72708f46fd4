"""A real MariaDB or MySQL with a data folder of its own."""
