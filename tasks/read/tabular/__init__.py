"""Reading tables of text and SQLite: layouts, cells, records."""
