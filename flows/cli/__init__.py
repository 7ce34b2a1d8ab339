"""The command line: one verb, one function, the same names as the flows."""

from tilewatch.flows.cli.app import main

__all__ = ["main"]
