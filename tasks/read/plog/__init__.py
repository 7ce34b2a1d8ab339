"""CANN logs: lines, tiling records, launches, faults, and what was lost."""
