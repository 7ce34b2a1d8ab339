"""QuantBatchMatmulV3 on 910B and 910C."""
