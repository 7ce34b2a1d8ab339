"""Linears and experts as serving holds them: loaded once into their format, called through the operators.

They alone live on the device of the backend: each takes its activations there and brings its result back.
On a CPU that is nothing. On an NPU the rest of the model stays on the host: its times there say little.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import parameters
import torch
from backends import Backend
from operations import grouped_matmul, quant_linear, quantise
from operators import GROUPED_MATMUL, MM, QUANT_MATMUL
from spans import span
from weights import WeightKey, load

ACL_FORMAT_ND = 2
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
        return self._placed(name, parameters.weight(self._seed, name, shape), wanted)

    def quantised(self, name: str, shape: Tuple[int, ...]) -> Quantised:
        """An INT8 weight and its BF16 scale by column."""
        steps, scale = parameters.quantised(parameters.weight(self._seed, name, shape))
        return self._placed(name, steps, NZ), self.backend.place(scale)

    def host(self, name: str, shape: Tuple[int, ...]) -> torch.Tensor:
        """A BF16 weight that stays on the host."""
        source = parameters.weight(self._seed, name, shape)
        self._count(name, source)
        self.other_formats[name] = ACL_FORMAT_ND
        return source

    def gain(self, name: str, size: int) -> torch.Tensor:
        """The gain of an RMS norm, on the host."""
        return parameters.gain(self._seed, name, size)

    def _count(self, name: str, source: torch.Tensor) -> None:
        self.shapes[name] = tuple(source.shape)
        self.size_bytes += source.numel() * source.element_size()

    def _placed(self, name: str, source: torch.Tensor, wanted: Optional[str]) -> torch.Tensor:
        dtype = str(source.dtype).replace("torch.", "")
        key = WeightKey(dtype, tuple(source.shape), wanted, transposed=False)
        loaded = load(source, key, self.backend.place, last=True)
        formats = self.formats if wanted else self.other_formats
        formats[name] = int(torch.ops.npu.get_npu_format(loaded))
        self._count(name, source)
        return loaded


def quantised_rows(backend: Backend, x: torch.Tensor) -> Quantised:
    """INT8 rows and their scales, by the operator, as they are dispatched to experts."""
    steps, scale = quantise(backend.place(x))
    return steps.cpu(), scale.cpu()


class QuantLinear:
    """INT8 weight, activations quantised per token in front of it."""

    operator = QUANT_MATMUL

    def __init__(self, loader: Loader, name: str, k: int, n: int, category: str = "dense") -> None:
        self.name, self.k, self._category = name, k, category
        self._place = loader.backend.place
        self._weight, self._scale = loader.quantised(name, (k, n))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """BF16 [M, N] of BF16 ``x`` [M, K]."""
        with span("quant", self.name):
            pair = quantise(self._place(x))
        with span(self._category, self.name):
            return quant_linear(pair, self._weight, self._scale).cpu()


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
        self._place = loader.backend.place
        self._weight = loader.weight(name, (k, n), wanted)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """BF16 [M, N] of BF16 ``x`` [M, K]."""
        with span(self._category, self.name):
            return torch.matmul(self._place(x), self._weight).cpu()


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
            "group_list": self._backend.place(group_list),
            "output_dtype": torch.bfloat16,
        }
        if self._scale is not None:
            x, pertoken_scale = x
            wanted["scale"] = [self._scale]
            wanted["per_token_scale"] = [self._backend.place(pertoken_scale)]
        with span("expert", self.name):
            arguments = self._backend.arguments(GROUPED_MATMUL, wanted)
            return grouped_matmul(self._backend.place(x), self._weight, arguments).cpu()


def linear(loader: Loader, name: str, k: int, n: int, category: str = "dense") -> Any:
    """A linear that the arm quantises, or its BF16 counterpart."""
    kind = QuantLinear if loader.quantization else FloatLinear
    return kind(loader, name, k, n, category)
