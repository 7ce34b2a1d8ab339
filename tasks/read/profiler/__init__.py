"""Profiler output, one module a file format."""
