"""What a running pipeline does, in numbers: per table, and how far behind the source it is."""
