"""Local services, started for the user where no server is given."""

from tilewatch.infra.services.store import store

__all__ = ["store"]
