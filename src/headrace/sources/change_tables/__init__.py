"""What servers have in common that put changes into tables of their own: SQL Server, and Db2 with SQL Replication.

Planning, snapshots, windows of commits, ad-hoc snapshots and signals are here; a server's own part is its connection,
its catalog, its types, its statements and the shape of its change tables, which `Dialect` brings together.
"""
