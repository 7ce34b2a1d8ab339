"""What happened over builds: fence, t-scan, E-divisive, and the history of a point."""
