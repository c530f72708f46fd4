"""What changes pass on their way from the source to a sink: transforms and routes."""
