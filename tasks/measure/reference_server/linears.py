"""Linears and experts as serving holds them: loaded once into their format, called through the operators."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import parameters
import torch
from backends import Backend
from operations import GROUPED_MATMUL, MM, QUANT_MATMUL, grouped_matmul, quant_linear, quantise
from spans import span
from weights import WeightKey, load

NZ = "FRACTAL_NZ"
Quantised = Tuple[torch.Tensor, torch.Tensor]


class Loader:
    """Makes the weights of one arm on one device and remembers the format that each was proved to have.

    ``formats`` has the weights that the arm decides about, ``other_formats`` those that are ND in every arm.
    """

    def __init__(self, backend: Backend, seed: int, quantization: Optional[str]) -> None:
        self.backend = backend
        self.quantization = quantization
        self.formats: Dict[str, int] = {}
        self.other_formats: Dict[str, int] = {}
        self.shapes: Dict[str, Tuple[int, ...]] = {}
        self.size_bytes = 0
        self._seed = seed

    def weight(self, name: str, shape: Tuple[int, ...], wanted: Optional[str]) -> torch.Tensor:
        """A BF16 weight in the ``wanted`` format, ND where the environment or its alignment says so."""
        return self._loaded(name, parameters.weight(self._seed, name, shape), wanted)

    def quantised(self, name: str, shape: Tuple[int, ...]) -> Quantised:
        """An INT8 weight and its BF16 scale by column."""
        steps, scale = parameters.quantised(parameters.weight(self._seed, name, shape))
        return self._loaded(name, steps, NZ), self.backend.place(scale)

    def gain(self, name: str, size: int) -> torch.Tensor:
        """The gain of an RMS norm."""
        return self.backend.place(parameters.gain(self._seed, name, size))

    def _loaded(self, name: str, source: torch.Tensor, wanted: Optional[str]) -> torch.Tensor:
        dtype = str(source.dtype).replace("torch.", "")
        key = WeightKey(dtype, tuple(source.shape), wanted, transposed=False)
        loaded = load(source, key, self.backend.place, last=True)
        formats = self.formats if wanted else self.other_formats
        formats[name] = int(torch.ops.npu.get_npu_format(loaded))
        self.shapes[name] = tuple(source.shape)
        self.size_bytes += source.numel() * source.element_size()
        return loaded


class QuantLinear:
    """INT8 weight, activations quantised per token in front of it."""

    operator = QUANT_MATMUL

    def __init__(self, loader: Loader, name: str, k: int, n: int, category: str = "dense") -> None:
        self.name, self.k, self._category = name, k, category
        self._weight, self._scale = loader.quantised(name, (k, n))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """BF16 [M, N] of BF16 ``x`` [M, K]."""
        with span("quant", self.name):
            pair = quantise(x)
        with span(self._category, self.name):
            return quant_linear(pair, self._weight, self._scale)


class FloatLinear:
    """BF16 weight; ``wanted`` format None leaves it ND in every arm."""

    operator = MM

    def __init__(
        self,
        loader: Loader,
        name: str,
        k: int,
        n: int,
        category: str = "dense",
        wanted: Optional[str] = NZ,
    ) -> None:
        self.name, self.k, self._category = name, k, category
        self._weight = loader.weight(name, (k, n), wanted)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """BF16 [M, N] of BF16 ``x`` [M, K]."""
        with span(self._category, self.name):
            return torch.matmul(x, self._weight)


class Experts:
    """Weights [E, K, N] of all routed experts, multiplied by group."""

    operator = GROUPED_MATMUL

    def __init__(self, loader: Loader, name: str, shape: Tuple[int, int, int]) -> None:
        self.name, self.k, self.experts = name, shape[1], shape[0]
        self._backend = loader.backend
        self._scale: Optional[torch.Tensor] = None
        if loader.quantization:
            self._weight, self._scale = loader.quantised(name, shape)
        else:
            self._weight = loader.weight(name, shape, NZ)

    def __call__(self, x: Any, group_list: torch.Tensor) -> torch.Tensor:
        """BF16 [rows, N]; ``x`` is BF16 rows, or INT8 rows with their scales, sorted by expert."""
        wanted: Dict[str, Any] = {
            "split_item": 2,
            "group_type": 0,
            "group_list_type": 1,
            "group_list": group_list,
            "output_dtype": torch.bfloat16,
        }
        if self._scale is not None:
            x, pertoken_scale = x
            wanted.update(scale=[self._scale], per_token_scale=[pertoken_scale])
        with span("expert", self.name):
            return grouped_matmul(x, self._weight, self._backend.arguments(GROUPED_MATMUL, wanted))


def linear(loader: Loader, name: str, k: int, n: int, category: str = "dense") -> Any:
    """A linear that the arm quantises, or its BF16 counterpart."""
    kind = QuantLinear if loader.quantization else FloatLinear
    return kind(loader, name, k, n, category)
