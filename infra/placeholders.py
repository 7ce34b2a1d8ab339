"""Secrets that were left as shipped: nothing starts with them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewatch.infra.errors import SettingsError

PLACEHOLDER = "CHANGE-ME"
"""What stands in `infra/systemd/*.env` where every site has to write something of its own."""
SHIPPED = frozenset({"user:password"})
"""Logins that earlier files shipped, and which are therefore known to everybody."""
PREFIXES = ("PREFECT_", "TILEWATCH_")


def refuse_placeholders(environment: Mapping[str, str]) -> None:
    """Raise SettingsError naming the variables of ``environment`` that still hold a placeholder."""
    left = sorted(
        name
        for name, value in environment.items()
        if name.startswith(PREFIXES) and (PLACEHOLDER in value or value in SHIPPED)
    )
    if left:
        raise SettingsError(
            f"{', '.join(left)}: still as shipped", "Write this site's own value into the environment file"
        )
