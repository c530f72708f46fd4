"""What emulated servers share."""
