"""``/v1/completions``: what may be asked for, and what is answered.

A token is a word: ``t17`` (or ``17``) is token 17. A prompt is a list of ids or a string of such words.
Decoding is greedy. Fields that are not named here are ignored.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional

MODEL = "reference-decoder"
DEFAULT_MAX_TOKENS = 16


class BadRequest(ValueError):
    """A field of a request that cannot be; the message names it."""


class Asked(NamedTuple):
    """A valid request."""

    prompt: List[int]
    max_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool


def parse(body: bytes, vocabulary: int, most_tokens: int) -> Asked:
    """The request in ``body``. ``most_tokens`` bounds prompt and output together. Raises BadRequest."""
    fields = json_object(body)
    prompt = _prompt(fields.get("prompt"), vocabulary)
    max_tokens = integer(fields, "max_tokens", DEFAULT_MAX_TOKENS)
    if len(prompt) + max_tokens > most_tokens:
        raise BadRequest(
            f"prompt of {len(prompt)} tokens and max_tokens {max_tokens} are more than the {most_tokens} "
            "that context and KV cache hold"
        )
    if fields.get("temperature") not in (None, 0):
        raise BadRequest(f"temperature {fields['temperature']!r}: decoding is greedy, only 0 is served")
    for name in ("n", "best_of"):
        if fields.get(name) not in (None, 1):
            raise BadRequest(f"{name} {fields[name]!r}: one completion a request is served")
    options = fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options: must be an object")
    return Asked(
        prompt,
        max_tokens,
        boolean(fields, "ignore_eos"),
        boolean(fields, "stream"),
        boolean(options, "include_usage"),
    )


def json_object(body: bytes) -> Dict[str, Any]:
    """The JSON object in ``body``. Raises BadRequest."""
    try:
        fields = json.loads(body or b"{}")
    except ValueError as error:
        raise BadRequest(f"body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRequest("body: must be a JSON object")
    return fields


def integer(fields: Dict[str, Any], name: str, default: int) -> int:
    """A whole number of at least 1. Raises BadRequest."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"{name} {value!r}: must be a whole number of at least 1")
    return value


def boolean(fields: Dict[str, Any], name: str) -> bool:
    """True or False; absent is False. Raises BadRequest."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} {value!r}: must be true or false")
    return bool(value)


def _prompt(prompt: Any, vocabulary: int) -> List[int]:
    if isinstance(prompt, str):
        words = prompt.split()
        wrong = next((word for word in words if not re.fullmatch(r"t?\d{1,9}", word)), None)
        if wrong is not None:
            raise BadRequest(f"prompt: {wrong!r} is no word of the vocabulary, t0 to t{vocabulary - 1}")
        prompt = [int(word.lstrip("t")) for word in words]
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt: must be a list of token ids or a string of words, and not empty")
    for token in prompt:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary:
            raise BadRequest(f"prompt: {token!r} is no token id from 0 to {vocabulary - 1}")
    return list(prompt)


def chunk(number: int, tokens: List[int], finish_reason: Optional[str]) -> Dict[str, Any]:
    """One completion object: a streamed piece or the whole."""
    choice = {
        "index": 0,
        "text": "".join(f" t{token}" for token in tokens),
        "token_ids": tokens,
        "logprobs": None,
        "finish_reason": finish_reason,
    }
    return {
        "id": f"cmpl-{number}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [choice],
    }


def usage(prompt_tokens: int, completion_tokens: int) -> Dict[str, int]:
    """The ``usage`` object."""
    total = prompt_tokens + completion_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": total,
    }
