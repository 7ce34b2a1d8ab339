"""Great Expectations over every table before it is stored, in a process of its own."""
