"""The report of a run: headline, curves, ledger, gaps, and what changed over builds."""
