"""What a person chooses from, written once: agents, presets, and the SoC where none is named."""

from __future__ import annotations

from typing import Literal

Agent = Literal["cpu", "npu", "simulated"]
"""What executes: this CPU's reference kernels, a device through torch_npu, or nothing at all."""

OperatorPreset = Literal["smoke", "quick", "full"]
"""How much of an operator experiment is measured; every experiment file has these."""

AnyPreset = Literal["smoke", "quick", "full", "reference_ci"]
"""Presets of a run: ``reference_ci`` is only of serving experiments."""

DEFAULT_SOC = "Ascend910_9391"
"""The SoC of the reference deployment, a die of a 910C."""
