"""Part: one device's share of a run that several devices measure."""

from __future__ import annotations

from prefect import flow

from tilewatch.flows.steps.measure import Batch
from tilewatch.flows.steps.parts import measure_part
from tilewatch.flows.steps.requests import PartRequest
from tilewatch.infra.archive import open_archive
from tilewatch.infra.logs import recorded
from tilewatch.infra.settings import load_settings


@flow(name="part", flow_run_name="part {request.queue} {request.run_id}")
def part(request: PartRequest) -> int:
    """Measure, archive and claim whole blocks of a run; returns how many. Claimed ones are left."""
    settings = load_settings()
    wanted = [Batch(letter, int(block)) for letter, block in (b.split("-") for b in request.blocks)]
    with recorded(settings, run_id=request.run_id), open_archive(settings) as archive:
        return measure_part(
            settings, archive, request.run_id, wanted, request.queue, request.build, request.soc
        )
