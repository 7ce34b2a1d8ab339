"""Thin Prefect flows: order, retries, schedules, parameters."""
