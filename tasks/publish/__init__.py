"""Results as people read them: reports, summaries, and comparisons at their stable address."""
