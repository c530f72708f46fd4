"""What `make dist` makes of this tree: both distributions, and what they are made of (CONTRIBUTING.md)."""
