"""Where changes rest."""
