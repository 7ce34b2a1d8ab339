"""What the server is started with: flags, and an arm file that stands for some of them."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

QUANTIZATIONS = ("w8a8_int8", "none")
FAULTS = {
    "never_ready": False,
    "crash_at_load": False,
    "die_after_tokens": True,
    "stall_request": True,
    "no_profile_endpoint": False,
}
"""Faults that a test may ask for, and whether the number of a token or request follows, counted from 1."""

_FAULTS = ", ".join(name + ":N" * counted for name, counted in FAULTS.items())


class OptionError(ValueError):
    """A flag or a field of the arm file that cannot be; the message names it."""


def parse(arguments: List[str]) -> argparse.Namespace:
    """Options of a server: ``quantization`` None for none, ``fault`` a number by name. Raises OptionError."""
    parser = argparse.ArgumentParser(description="Serve a tiny decoder with random weights on the loopback.")
    parser.add_argument("--port", type=int, required=True, help="0 takes any free port and says which")
    parser.add_argument("--arm-file", type=Path, help="JSON object with arm and quantization")
    parser.add_argument("--arm", help="name of the arm, for /server_info")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, help="default: w8a8_int8")
    parser.add_argument("--device", choices=("cpu", "npu"), default="cpu")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights, the same for every arm")
    parser.add_argument("--threads", type=int, default=1, help="CPUs that the engine is pinned to")
    parser.add_argument("--memory-mib", type=int, default=112, help="weights and KV cache together")
    parser.add_argument("--kv-capacity-tokens", type=int, help="instead of what the memory leaves")
    parser.add_argument("--max-running-requests", type=int, default=8)
    parser.add_argument("--max-prefill-tokens", type=int, default=512, help="of one prefill step")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="its death ends the server")
    parser.add_argument("--fault", action="append", default=[], help=f"for tests: {_FAULTS}")
    options = parser.parse_args(arguments)
    arm = _arm(options.arm_file) if options.arm_file else {}
    options.arm = options.arm or str(arm.get("arm") or "default")
    quantization = options.quantization or arm.get("quantization", "w8a8_int8") or "none"
    if quantization not in QUANTIZATIONS:
        raise OptionError(f"quantization {quantization!r}: not one of {', '.join(QUANTIZATIONS)}")
    options.quantization = None if quantization == "none" else quantization
    for name in ("threads", "memory_mib", "kv_capacity_tokens", "max_running_requests", "max_prefill_tokens"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise OptionError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    options.fault = dict(_fault(text) for text in options.fault)
    return options


def _fault(text: str) -> Tuple[str, int]:
    name, _, number = text.partition(":")
    if name not in FAULTS or FAULTS[name] != number.isdigit():
        raise OptionError(f"--fault {text}: not one of {_FAULTS}")
    return name, int(number or 1)


def _arm(path: Path) -> Dict[str, Any]:
    try:
        arm = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"--arm-file {path}: {error}") from error
    if not isinstance(arm, dict):
        raise OptionError(f"--arm-file {path}: must hold a JSON object")
    return arm
