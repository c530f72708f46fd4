"""MariaDB and MySQL as targets."""
