"""The results site: a door to the archive that only reads."""
