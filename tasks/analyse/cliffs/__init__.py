"""Steps in latency along an axis: found, classified, refined, then explained by tiling."""
