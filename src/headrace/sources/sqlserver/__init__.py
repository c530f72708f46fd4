"""SQL Server: changes from the change tables that its own change data capture fills."""
