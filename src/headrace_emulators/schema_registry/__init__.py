"""A schema registry for tests and demos."""
