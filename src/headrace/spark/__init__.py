"""Spark on this machine: Java, jars, sessions and Python workers."""
