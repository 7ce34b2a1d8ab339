"""Points joined with their kernels and their observed tiling records."""
