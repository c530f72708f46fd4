"""Oracle: changes taken out of the redo logs."""
