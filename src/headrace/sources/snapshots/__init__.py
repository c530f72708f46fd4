"""Snapshots: which rows are read, in which chunks, and which ones are requested while a stream runs."""
