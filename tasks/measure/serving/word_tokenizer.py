"""A word-level tokenizer for the reference server: word ``t17`` is token 17.

SGLang's client wants a tokenizer on disk; this is the file format of the ``tokenizers`` library, version 1.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_tokenizer(folder: Path, vocabulary: int) -> Path:
    """Write a tokenizer of ``vocabulary`` words into ``folder``; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {f"t{token}": token for token in range(vocabulary)},
            "unk_token": "t0",
        },
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
