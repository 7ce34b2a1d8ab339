"""Captures with planted truth, for demonstrations, tests and load; always evidence simulated."""
