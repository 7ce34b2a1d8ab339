"""Deployments: one YAML describes the fleet, `tilewatch deploy` makes a Prefect server agree with it."""
