"""Captures made of files that exist already: what each file is, and which belong together."""
