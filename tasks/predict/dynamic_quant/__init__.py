"""Host tiling of DynamicQuant, one module a platform."""
