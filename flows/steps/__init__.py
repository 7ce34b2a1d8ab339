"""The steps of a run with their side effects: prepare, measure, archive, tabulate, report."""
