"""The host tiling restated as pure functions of shape, format, attributes, platform and CANN version."""
