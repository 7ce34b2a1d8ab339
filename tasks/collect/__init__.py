"""Capture folders into the object store: create-only, content-addressed, manifest last."""
