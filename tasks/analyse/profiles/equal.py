"""What must be equal in two profiles and is not: refused, warned of, or named as the change itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.tasks.read.captures.profile_capture import ProfileCapture

REFUSES = {
    "chip": "device",
    "aic_count": "cube cores",
    "aiv_count": "vector cores",
    "aic_frequency_mhz": "AI Core frequency",
    "profiler_level": "profiler level",
    "aic_metrics": "aic_metrics",
}
"""Facts of which a difference makes durations of equal kernels incomparable."""
CHANGES = {"cann_version": "CANN", "torch_npu_version": "torch_npu"}
"""Facts that an upgrade changes: told, since they may be what is asked about."""
_CONFIG = "config.common_config."
_EXPERIMENTAL = "config.experimental_config."
WARNS = {
    _CONFIG + "with_stack": "stacks recorded",
    _CONFIG + "profile_memory": "memory recorded",
    _CONFIG + "record_shapes": "shapes recorded",
    _CONFIG + "with_modules": "modules recorded",
    _EXPERIMENTAL + "_l2_cache": "L2 cache recorded",
    "ENV_VARIABLES.ASCEND_LAUNCH_BLOCKING": "ASCEND_LAUNCH_BLOCKING",
}
"""Settings that slow the host down or change what is recorded: idle time is not comparable then."""
PARALLEL = ("distributed_args.", "parallel_group_info.")
"""Settings of the parallel groups; the rank's own number is no difference of the program."""
_OWN = ("distributed_args.rank", ".group_rank")


@dataclass(frozen=True)
class Differences:
    """Sentences by what follows from them; ``refused`` and ``parallel`` name what no override allows."""

    refused: tuple[str, ...]
    parallel: tuple[str, ...]
    warned: tuple[str, ...]
    changed: tuple[str, ...]


def differences(
    base: Sequence[ProfileCapture], candidate: Sequence[ProfileCapture], overrides: Collection[str] = ()
) -> Differences:
    """What the description files of the two sides say differently; what only one side says is not judged.

    ``overrides`` are names of facts (``aic_metrics``), or ``parallel_groups``, that may differ.
    """
    facts = [_values(side, "facts") for side in (base, candidate)]
    settings = [_values(side, "settings") for side in (base, candidate)]
    refused = {key: _said(words, key, facts) for key, words in REFUSES.items()}
    kept = tuple(text for key, text in refused.items() if text and key not in overrides)
    ignored = tuple(f"ignored as asked: {text}" for key, text in refused.items() if text and key in overrides)
    parallel = _parallel(settings)
    if "parallel_groups" in overrides:
        ignored, parallel = (*ignored, *(f"ignored as asked: {text}" for text in parallel)), ()
    warned = tuple(filter(None, (_said(words, key, settings) for key, words in WARNS.items())))
    changed = tuple(filter(None, (_said(words, key, facts) for key, words in CHANGES.items())))
    return Differences(kept, parallel, (*warned, *ignored), changed)


def _values(side: Sequence[ProfileCapture], which: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for capture in side:
        for key, value in getattr(capture, which).items():
            found.setdefault(key, set()).add(_text(value))
    return found


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    return str(value).strip('"')


def _said(words: str, key: str, sides: Sequence[dict[str, set[str]]]) -> str:
    one, other = (side.get(key) for side in sides)
    if one is None or other is None or one == other:
        return ""
    return f"{words}: {' and '.join(sorted(one))} → {' and '.join(sorted(other))}"


def _parallel(settings: Sequence[dict[str, set[str]]]) -> tuple[str, ...]:
    """Differences of the parallel groups, where both sides describe them."""
    groups = [
        {k: v for k, v in side.items() if k.startswith(PARALLEL) and not k.endswith(_OWN)}
        for side in settings
    ]
    if not all(groups):
        return ()
    sizes = [_sizes(side) for side in groups]
    found = []
    for key in sorted(sizes[0].keys() | sizes[1].keys()):
        one, other = (side.get(key, {"none"}) for side in sizes)
        if one != other:
            found.append(f"{key}: {' and '.join(sorted(one))} → {' and '.join(sorted(other))}")
    return tuple(found)


def _sizes(side: dict[str, set[str]]) -> dict[str, set[str]]:
    """Sizes of parallelism as they stand, and the number of ranks of every named group."""
    found = {k.split(".", 1)[1]: v for k, v in side.items() if k.startswith(PARALLEL[0])}
    for key, names in side.items():
        if key.startswith(PARALLEL[1]) and key.endswith(".group_name"):
            ranks = side.get(key.removesuffix("group_name") + "global_ranks", {"[]"})
            counts = {str(text.count(",") + 1 if text.strip("[]") else 0) for text in ranks}
            for name in names:
                found.setdefault(f"ranks of group {name}", set()).update(counts)
    return found
