"""What ships for people who add a source, a format or a sink: servers that tests and demos run on this machine."""
