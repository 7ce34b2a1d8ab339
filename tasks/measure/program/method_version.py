"""The version of what a number means; see the test that guards it before changing anything in this folder."""

METHOD_VERSION = 2
"""Raised when the semantics of the timing change, so that old numbers are never compared with new ones."""

SCHEMA_VERSION = 1
"""Version of the plan file and of the capture folder."""
