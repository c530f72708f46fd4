"""Programs of other products that read what Headrace writes."""
