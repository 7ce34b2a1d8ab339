"""The documentation page of a contract: what a person reads before querying the table."""

from __future__ import annotations

from tilewatch.data_contracts.contract import contract


def documentation(table: str) -> str:
    """Markdown page of ``table``: purpose, columns with type, unit and meaning, then the rules in words."""
    spec = contract(table)
    lines = [f"# {spec.name} (version {spec.version})", "", spec.purpose, ""]
    lines += ["| column | type | unit | key | null | meaning |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{c.name}` | {c.physical_type} | {c.unit or ''} | {'key' if c.key else ''} | "
        f"{'' if c.required else 'yes'} | {c.description} |"
        for c in spec.columns
    ]
    lines += ["", "Rules beside the types:", ""]
    lines += [f"- {rule['description']} (`{rule['type']}`)" for rule in spec.rules]
    return "\n".join(lines) + "\n"
