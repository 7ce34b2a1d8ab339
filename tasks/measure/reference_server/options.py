"""What the server is started with: flags, and an arm file that stands for some of them."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

QUANTIZATIONS = ("w8a8_int8", "none")
FAULTS = {
    "never_ready": False,
    "crash_at_load": False,
    "die_after_tokens": True,
    "stall_request": True,
    "no_profile_endpoint": False,
}
"""Faults that a test may ask for, and whether a number follows after a colon."""


class OptionError(ValueError):
    """A flag or a field of the arm file that cannot be; the message names it."""


class Fault:
    """At most one fault; ``number`` says at which token or request, counted from 1."""

    def __init__(self, text: Optional[str]) -> None:
        name, _, number = (text or "").partition(":")
        if name and name not in FAULTS:
            raise OptionError(f"--fault {text}: not one of {', '.join(FAULTS)}")
        if name and FAULTS[name] != number.isdigit():
            raise OptionError(f"--fault {text}: {'needs :N' if FAULTS[name] else 'takes no number'}")
        self.name = name
        self.number = int(number) if number else 0

    def is_(self, name: str) -> bool:
        """Whether this is the fault ``name``."""
        assert name in FAULTS
        return self.name == name


def parse(arguments: List[str]) -> argparse.Namespace:
    """Options of one server; ``quantization`` is None for none, ``fault`` a Fault. Raises OptionError."""
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
    parser.add_argument("--fault", help="one of " + ", ".join(n + ":N" * c for n, c in FAULTS.items()))
    options = parser.parse_args(arguments)
    arm = _arm(options.arm_file) if options.arm_file else {}
    options.arm = options.arm or arm.get("arm") or "default"
    quantization = options.quantization or arm.get("quantization", "w8a8_int8") or "none"
    if quantization not in QUANTIZATIONS:
        raise OptionError(f"quantization {quantization!r}: not one of {', '.join(QUANTIZATIONS)}")
    options.quantization = None if quantization == "none" else quantization
    for name in ("threads", "memory_mib", "max_running_requests", "max_prefill_tokens"):
        if getattr(options, name) < 1:
            raise OptionError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    options.fault = Fault(options.fault)
    return options


def _arm(path: Path) -> Dict[str, Any]:
    try:
        arm = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"--arm-file {path}: {error}") from error
    if not isinstance(arm, dict):
        raise OptionError(f"--arm-file {path}: must hold a JSON object")
    return arm
