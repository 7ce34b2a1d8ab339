"""The integer arithmetic that host tiling code uses."""
