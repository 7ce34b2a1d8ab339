"""How every page of this package is rendered: strict, escaped templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2


def templates(**filters: Callable[..., Any]) -> jinja2.Environment:
    """The templates of this package with ``filters``; a name that a template lacks is an error, not a gap."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tasks.publish", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment
