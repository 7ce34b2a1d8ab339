"""Cost category of a kernel by its operator type and, where only that separates them, by (K, N).

The rules are data: ``kernel_categories.yaml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import yaml

RULES = Path(__file__).with_name("kernel_categories.yaml")
OTHER = "other"

_LAUNCH_SUFFIX = re.compile(r"(_\d+)?(_mix_(aic|aiv))?$")
_CORE_SUFFIX = re.compile(r"(?<=[A-Za-z0-9])Ai[Cc]ore$")


@dataclass(frozen=True)
class ShapeRule:
    """A second look by shape: kernels of ``category`` or ``types`` with a listed K and N change category."""

    becomes: str
    category: str | None = None
    types: tuple[str, ...] = ()
    k: tuple[int, ...] = ()
    n: tuple[int, ...] = ()


@dataclass(frozen=True)
class CategoryRules:
    """The rules file: one pattern a rule in order, then the second look by shape."""

    names: tuple[str, ...]
    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    shapes: tuple[ShapeRule, ...]

    def category(self, op_type: str) -> str | None:
        """Category of an operator type, None where no rule names it."""
        for form in (op_type, _CORE_SUFFIX.sub("", op_type), _LAUNCH_SUFFIX.sub("", op_type)):
            for category, pattern in self.patterns:
                if pattern.fullmatch(form):
                    return category
        return None


@cache
def category_rules() -> CategoryRules:
    """The rules of ``kernel_categories.yaml``. Raises ValueError for a category that is not declared."""
    document: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    patterns = tuple((r["category"], re.compile("|".join(r["types"]))) for r in document["rules"])
    shapes = tuple(_shape_rule(rule) for rule in document["shapes"])
    names = tuple(document["categories"])
    used = {category for category, _ in patterns} | {shape.becomes for shape in shapes}
    if unknown := sorted(used - set(names)):
        raise ValueError(f"{RULES.name}: unknown category {', '.join(unknown)}")
    return CategoryRules(names, patterns, shapes)


def _shape_rule(rule: dict[str, Any]) -> ShapeRule:
    lists = {key: tuple(rule.get(key, ())) for key in ("types", "k", "n")}
    return ShapeRule(rule["becomes"], rule.get("category"), **lists)


def categories(
    op_type: pa.Array, name: pa.Array, k: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> pa.Array:
    """Category of every kernel; ``k`` and ``n`` are -1 where unknown.

    A kernel without an operator type is classified by its name, as a whole or by its last word. A type that
    no rule names is ``other``.
    """
    rules = category_rules()
    label = pc.coalesce(op_type, name).dictionary_encode()
    known = np.array([_known(text) for text in label.dictionary.to_pylist()], dtype=np.int64).reshape(-1, 2)
    row = label.indices.to_numpy(zero_copy_only=False)
    codes, looks = known[:, 0], known[:, 1]
    result = codes[row]
    for number, rule in enumerate(rules.shapes):
        meant = (looks >> number & 1).astype(np.bool_)
        if not meant.any():
            continue
        mask = meant[row]
        if rule.types:
            mask &= op_type.is_valid().to_numpy(zero_copy_only=False)
        mask &= np.isin(k, rule.k) if rule.k else True
        mask &= np.isin(n, rule.n) if rule.n else True
        result[mask] = rules.names.index(rule.becomes)
    return pa.array(rules.names).take(pa.array(result))


def other_share(table: pa.Table) -> float | None:
    """Share of the device time of a kernels table whose category is ``other``; None without any time."""
    total = pc.sum(table.column("duration_ns")).as_py()
    if not total:
        return None
    other = pc.sum(table.column("duration_ns").filter(pc.equal(table.column("category"), OTHER))).as_py() or 0
    return float(other) / float(total)


@lru_cache(maxsize=8192)
def _known(text: str) -> tuple[int, int]:
    """Index of the category of an operator type or name; a bit for every shape rule that may change it."""
    rules = category_rules()
    last_word = _LAUNCH_SUFFIX.sub("", text).rsplit("_", 1)[-1]
    category = rules.category(text) or rules.category(last_word) or OTHER
    looks = 0
    for number, rule in enumerate(rules.shapes):
        meant = rule.category in (None, category) and (not rule.types or text in rule.types)
        looks |= meant << number
    return rules.names.index(category), looks
