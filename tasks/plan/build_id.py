"""The name of a build: a hash over its components, the same here and in the measuring program."""

from __future__ import annotations

from collections.abc import Mapping

from tilewatch.tasks.plan.ids import short_hash


def build_id(components: Mapping[str, str]) -> str:
    """First 16 hex digits of sha256 over the canonical JSON of the components."""
    return short_hash(dict(components))
