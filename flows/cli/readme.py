"""The blocks of README that are generated: commands with their help, exit codes, settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from tilewatch.flows.cli.exits import MEANINGS
from tilewatch.infra.settings import PREFIX, Settings


def commands() -> str:
    """A table of every verb with the first sentence of its help."""
    from tilewatch.flows.cli.app import app

    rows = ["| command | what it does |", "|---|---|"]
    rows += [f"| `{usage}` | {help_text} |" for usage, help_text in verbs(typer.main.get_command(app))]
    return "\n".join(rows)


def exits() -> str:
    """A table of the exit codes."""
    return "\n".join(["| code | meaning |", "|---|---|", *(f"| {c} | {m} |" for c, m in MEANINGS.items())])


def settings() -> str:
    """A table of every setting with its variable and meaning."""
    rows = ["| variable | meaning |", "|---|---|"]
    rows += [f"| `{PREFIX}{n.upper()}` | {f.description} |" for n, f in Settings.model_fields.items()]
    return "\n".join(rows)


def coverage() -> str:
    """A table of the predicted shares of the reference linears."""
    from tilewatch.flows.cli.predict_arguments import experiments_of
    from tilewatch.flows.cli.predict_path import CANN, PLATFORMS
    from tilewatch.tasks.predict.environment import platform
    from tilewatch.tasks.predict.questions.coverage import coverage_rows
    from tilewatch.tasks.predict.questions.experiments import curves

    swept = [curve for spec in experiments_of(None) for curve in curves(spec)]
    found = coverage_rows(swept, [platform(name) for name in PLATFORMS], CANN)
    spans = list(dict.fromkeys(row["m"] for row in found))
    shares = {(row["operator"], row["soc"], row["format"], row["m"]): row["predicted"] for row in found}
    rows = [f"| operator, SoC, format | M {' | M '.join(spans)} |", f"|---|{'---|' * len(spans)}"]
    for key in dict.fromkeys(key[:3] for key in shares):
        rows.append(f"| {', '.join(key)} | {' | '.join(shares[*key, span] for span in spans)} |")
    return "\n".join(rows)


def verbs(group: Any, prefix: str = "tilewatch") -> list[tuple[str, str]]:
    """``(usage, first sentence of the help)`` of every command below ``group``, in the order of the help."""
    found: list[tuple[str, str]] = []
    for name, command in getattr(group, "commands", {}).items():
        usage = f"{prefix} {name}"
        if getattr(command, "commands", None):
            found += verbs(command, usage)
            continue
        arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
        sentence = re.split(r"(?<=\.)\s|\n\n", (command.help or "").strip())[0]
        found.append((" ".join([usage, *arguments]), re.sub(r"\s+", " ", sentence)))
    return found


def _argument(parameter: Any) -> str:
    name = f"{(parameter.name or '').upper()}{'…' if parameter.nargs == -1 else ''}"
    return name if parameter.required else f"[{name}]"


BLOCKS = {"commands": commands, "exits": exits, "settings": settings, "coverage": coverage}


def with_blocks(text: str) -> str:
    """README with every generated block as it must be. Raises ValueError for a block without its marks."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        if not re.search(pattern, text, re.DOTALL):
            raise ValueError(f"README.md has no block {name}")
        text = re.sub(pattern, partial(_filled, make), text, flags=re.DOTALL)
    return text


def _filled(make: Callable[[], str], match: re.Match[str]) -> str:
    return f"{match[1]}{make()}\n{match[2]}"


if __name__ == "__main__":
    readme = Path("README.md")
    readme.write_text(with_blocks(readme.read_text(encoding="utf-8")), encoding="utf-8")
