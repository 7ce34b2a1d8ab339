"""What an agent refuses to run, whatever the server says: all but a flow of its own checkout, as deployed.

Who has the login of the server can write anything there. An agent takes a flow's name and parameters from it,
and nothing that decides which program runs, where, or in which environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from prefect.workers.process import ProcessJobConfiguration

from tilewatch.data_contracts.errors import ENVIRONMENT, TilewatchError
from tilewatch.flows.deployments.runnable import CHECKOUT, ENTRYPOINTS, PULL_STEPS, job_configuration

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun, WorkPool
    from prefect.client.schemas.responses import DeploymentResponse


ENTRYPOINT = "PREFECT__FLOW_ENTRYPOINT"
"""Variable from which the engine loads the flow, in place of the server's deployment."""


class RefusedRunError(TilewatchError):
    """A flow run that asks for something else than a flow of this checkout; names what."""

    exit_code = ENVIRONMENT


class DeviceJobConfiguration(ProcessJobConfiguration):
    """How this agent starts a flow run: always in the same way, which no template of a server changes."""

    @classmethod
    async def resolve_for_flow_run(
        cls,
        flow_run: FlowRun,
        *,
        client: PrefectClient,
        work_pool: WorkPool,
        worker_name: str,
        worker_id: UUID | None = None,
        deployment: DeploymentResponse | None = None,
    ) -> Self:
        """The configuration of a run. Raises RefusedRunError where the run, or its deployment, is foreign."""
        if flow_run.deployment_id is None:
            raise RefusedRunError("the run belongs to no deployment")
        deployment = deployment or await client.read_deployment(flow_run.deployment_id)
        refuse_foreign(flow_run.job_variables, deployment)
        configuration = cls(**job_configuration())
        configuration.prepare_for_flow_run(
            flow_run=flow_run,
            deployment=deployment,
            flow=await client.read_flow(flow_run.flow_id),
            work_pool=work_pool,
            worker_name=worker_name,
            worker_id=worker_id,
        )
        configuration.env[ENTRYPOINT] = f"{CHECKOUT}/{deployment.entrypoint}"
        return configuration


def refuse_foreign(job_variables: Mapping[str, Any] | None, deployment: DeploymentResponse) -> None:
    """Raise RefusedRunError naming every job variable and every place that is not as `deploy` writes it."""
    variables = {**(deployment.job_variables or {}), **(job_variables or {})}
    foreign = [f"job variable {name}" for name in sorted(variables)]
    if deployment.entrypoint not in ENTRYPOINTS:
        foreign.append(f"entrypoint {deployment.entrypoint}")
    if deployment.path != str(CHECKOUT):
        foreign.append(f"path {deployment.path}")
    if deployment.pull_steps != PULL_STEPS:
        foreign.append("pull steps")
    if deployment.storage_document_id is not None:
        foreign.append("a storage block")
    if foreign:
        raise RefusedRunError(
            f"not run, because not as `tilewatch deploy` writes it: {', '.join(foreign)} of deployment "
            f"{deployment.name}; this agent runs flows of {CHECKOUT} alone, in its own environment"
        )
