"""Local services, started for the user where no server is given."""

from infra.services.store import store

__all__ = ["store"]
