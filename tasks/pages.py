"""How every page is rendered: strict, escaped templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2


def templates(package: str, folder: str, **filters: Callable[..., Any]) -> jinja2.Environment:
    """The templates in ``folder`` of a package; a name that a template lacks is an error, not a gap."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment
