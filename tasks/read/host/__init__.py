"""What machine and build this is, from its own files."""
