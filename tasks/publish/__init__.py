"""Comparisons at their stable address and the self-contained HTML report."""
