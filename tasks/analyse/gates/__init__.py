"""Absolute bars from a baseline or a stated requirement, and what follows from them."""
