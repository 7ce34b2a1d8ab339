"""The statistics that every analysis shares, and every limit in one place."""
