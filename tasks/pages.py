"""How every page is rendered: strict, escaped templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tilewatch.tasks.plain_text import visible


def templates(package: str, folder: str, **filters: Callable[..., Any]) -> jinja2.Environment:
    """The templates in ``folder`` of a package; a name that a template lacks is an error, not a gap."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    # For values that a form sends back: escaped for markup and otherwise as they are.
    environment.filters.update(filters, exact=escape)
    return environment


def _shown(value: Any) -> Any:
    """What a template prints: markup of ours as it is, a text from elsewhere without invisible characters."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
