"""Snapshots: which rows are read, in which chunks, and which ones are asked for while a stream runs."""
