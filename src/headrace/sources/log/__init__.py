"""What sources share that read a database's own log."""
