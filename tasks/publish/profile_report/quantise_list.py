"""The list of linears that should stay BF16, in a form that a quantiser's user can apply."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from tilewatch.tasks.analyse.profiles.linears import Answer, keep_bf16

HEAD = """# Linears that should stay BF16: by a BF16 and a W8A8 profile INT8 pays at no M that was seen.
# weight_shape is that of torch.nn.Linear.weight: [N, K]; experts is 0 for a dense linear.
# A profile knows shapes, not module names. msmodelslim takes names (disable_names); this finds them:
#   shapes = {tuple(one["weight_shape"]) for one in yaml.safe_load(open(FILE))["keep_bf16"]}
#   disable_names = [name for name, module in model.named_modules()
#                    if isinstance(module, torch.nn.Linear) and tuple(module.weight.shape) in shapes]
# Under tensor parallelism the shapes are those of one rank: multiply the split dimension by its size first.
"""


def quantise_list(answers: Sequence[Answer]) -> str:
    """YAML text: one entry a linear with weight shape, M seen, net time a call and share of the step."""
    kept = [
        {
            "weight_shape": [answer.linear.n, answer.linear.k],
            "experts": answer.linear.experts,
            "m": answer.linear.m,
            "calls_a_step": answer.calls,
            "net_ns": round(answer.net_ns),
            "net_low_ns": None if answer.net_low_ns is None else round(answer.net_low_ns),
            "net_high_ns": None if answer.net_high_ns is None else round(answer.net_high_ns),
            "share_of_step": round(answer.share, 6),
        }
        for answer in keep_bf16(answers)
    ]
    body: str = yaml.safe_dump({"schema_version": 1, "keep_bf16": kept}, sort_keys=False)
    return HEAD + body
