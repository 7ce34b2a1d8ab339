"""Which release decides a call: that of the operator package that tiles it, CANN's where none is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewatch.tasks.builds.packages import CANN, OPS_NN, OPS_TRANSFORMER, releases
from tilewatch.tasks.predict.calls import DynamicQuantCall, OperatorCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import CannVersion, Platform, cann_version, release

ASKED = "asked"


@dataclass(frozen=True)
class Release:
    """The code a call is predicted by. ``package`` is the operator package whose version was used, ``cann``
    as fall-back, ``asked`` where somebody asked for it; ``note`` says what a reader must know of the choice.
    """

    code: CannVersion
    package: str
    note: str | None = None


@dataclass(frozen=True)
class Releases:
    """What a build states: normal forms by package. ``asked`` is a release to predict by instead, by hand."""

    stated: Mapping[str, str]
    asked: str | None = None

    @classmethod
    def of_components(cls, components: Mapping[str, str], asked: str | None = None) -> Releases:
        """What the components of a build state."""
        return cls(releases(components), asked)

    def of(self, call: OperatorCall, platform: Platform) -> Release:
        """The release that decides ``call``. Raises PredictError that says why none is known."""
        package = package_of(call)
        stated = self.stated.get(package) or self.stated.get(CANN)
        if self.asked is not None:
            note = f"by hand, as {self.asked}; the build states {stated or 'no release'}"
            return Release(cann_version(self.asked, platform.npu_arch), ASKED, note)
        used = package if package in self.stated else CANN
        found = release(self.stated.get(used, "unknown"), platform.npu_arch)
        notes = [found.proof.get(package)]
        if used == CANN:
            notes.append(f"the version of {package} is not stated: CANN's stands for it")
        return Release(found.code, used, "; ".join(filter(None, notes)) or None)


def package_of(call: OperatorCall) -> str:
    """The operator package that holds the host tiling of ``call``."""
    return OPS_NN if isinstance(call, DynamicQuantCall | QuantMatmulCall) else OPS_TRANSFORMER
