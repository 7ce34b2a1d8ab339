"""What INT8 saves: ledger, break-even, exposed time, phases."""
