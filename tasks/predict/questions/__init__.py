"""What predictions are asked for: boundaries, upgrades, sweep points, observation."""
