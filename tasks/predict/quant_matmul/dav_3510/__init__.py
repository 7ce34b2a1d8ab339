"""QuantBatchMatmulV3 on 950."""
