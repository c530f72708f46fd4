"""Schemas that messages name by an id: how they name them, and where they come from."""
