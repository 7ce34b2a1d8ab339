"""Experiment YAML to plan: points × arms × processes in ABBA order, hashed and deterministic."""
