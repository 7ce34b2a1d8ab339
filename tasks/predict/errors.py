"""What a prediction can refuse, as one error with the field and the rule it broke."""

from __future__ import annotations

from tilewatch.data_contracts.errors import USAGE, TilewatchError


class PredictError(TilewatchError):
    """A call, platform or version that cannot be predicted. The message names the field and the rule."""

    exit_code = USAGE

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class OutOfScope(PredictError):
    """A legal call whose host rules are not restated here; the rule says what is covered instead."""
