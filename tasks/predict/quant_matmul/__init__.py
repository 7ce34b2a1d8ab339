"""Host tiling of QuantBatchMatmulV3, one package a platform."""
