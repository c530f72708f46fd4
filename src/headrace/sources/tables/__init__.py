"""The rules of captured tables: keys, columns, masks, and tables that went away."""
