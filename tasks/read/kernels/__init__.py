"""What a kernel's name, category and counters say."""
