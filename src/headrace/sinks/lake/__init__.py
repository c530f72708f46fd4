"""Tables of a lake: Delta and Iceberg, by one way of applying changes."""
