"""`headrace demo`: databases with history and live changes."""
