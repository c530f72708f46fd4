"""Databases and brokers for demos and tests, on this machine only.

Nothing here is needed to capture from a real server; the programs that use an emulator reach it by a registered driver name.
"""
