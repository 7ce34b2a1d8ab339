"""Run by the tests: greedy tokens of the reference server's model on a device, as JSON, for every arm.

``python server_on_npu.py PROGRAM_DIR SERVER_DIR cpu|npu``
"""

from __future__ import annotations

import json
import os
import sys

sys.path[:0] = sys.argv[1:3]
DEVICE = sys.argv[3]

from process import prepare_environment  # type: ignore[import-not-found]  # noqa: E402
from registry import backend_of  # type: ignore[import-not-found]  # noqa: E402

backend = backend_of(DEVICE)
prepare_environment({}, 1, backend.variables("timing", None))

from batching import Request  # type: ignore[import-not-found]  # noqa: E402
from engine import Engine, Limits  # type: ignore[import-not-found]  # noqa: E402
from shape import ModelShape  # type: ignore[import-not-found]  # noqa: E402

SHAPE = ModelShape(
    layers=2, hidden=256, q_lora=64, heads=4, head_dim=64, rope_dim=32, o_groups=2, o_lora=64,
    experts=4, expert_hidden=128, vocabulary=512, context_tokens=128,
)  # fmt: skip
PROMPTS = ([3, 141, 59, 26, 5], [64], [338, 32, 79, 50, 288, 419, 71, 7])

backend.open(1)
found = {}
for arm, quantization, disabled in (
    ("w8a8_nz", "w8a8_int8", "0"),
    ("w8a8_nd", "w8a8_int8", "1"),
    ("bf16", None, "0"),
):
    os.environ["SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT"] = disabled
    engine = Engine(backend, SHAPE, 5, quantization, Limits(64 << 20))
    requests = [Request(prompt, 6, ignore_eos=True) for prompt in PROMPTS]
    for request in requests:
        engine.scheduler.add(request)
    while engine.step():
        pass
    formats = sorted(set(engine.loader.formats.values()))
    found[arm] = {"formats": formats, "tokens": [request.output for request in requests]}
print(json.dumps({"evidence": backend.evidence(), "arms": found}), flush=True)
os._exit(0)
