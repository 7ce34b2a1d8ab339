"""Every table of a run derived from its captures, in one call."""
