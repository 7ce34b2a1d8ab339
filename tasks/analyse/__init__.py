"""Verdicts, cliffs, ledger and series: pure functions over contract tables."""
