"""MySQL and MariaDB, by the binary log."""
