"""Databases and brokers for demos and tests, on this machine only.

Nothing here is needed to capture from a real server; programs reach an emulator by a registered driver name.
"""
