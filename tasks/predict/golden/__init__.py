"""Predictions held against golden vectors."""
