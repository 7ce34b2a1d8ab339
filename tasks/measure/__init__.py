"""One fresh operating-system process per (arm, replicate) that leaves a capture folder."""
