"""Host tiling of GroupedMatmul."""
