"""`tilewatch collect-guide`: what to set in a profiler so that two profiles answer most."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import orjson
import typer

from tilewatch.flows.cli.output import out


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command(name="collect-guide")(collect_guide)


def collect_guide(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Print the profiler settings that answer most, and how torch_npu, SGLang and vllm-ascend take them."""
    from tilewatch.tasks.publish.profile_report.guide import ADVICE, RECIPES, guide

    if as_json:
        document = {"settings": [dataclasses.asdict(one) for one in ADVICE], "recipes": dict(RECIPES)}
        sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        out.print(guide(), soft_wrap=True, markup=False)
