"""One module a file format, each returning Arrow tables that satisfy their contract."""
