"""`predict operating-points`: the M and M_e that a decode step of a deployment gives its operators."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, show_table
from tilewatch.flows.cli.predict_arguments import values_of

_LEAST_SHARE = 1e-4


def operating_points_of(
    concurrency: Annotated[
        int, typer.Option(min=1, help="Requests under way at once, over all ranks.")
    ] = 160,
    ranks: Annotated[int, typer.Option(min=1, help="Attention data-parallel ranks.")] = 16,
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a request in a step: 1, or the draft tokens it verifies.")
    ] = 7,
    experts: Annotated[int, typer.Option(min=1, help="Routed experts of the model.")] = 256,
    top_k: Annotated[int, typer.Option(min=1, help="Experts that a token is routed to.")] = 6,
    graph_sizes: Annotated[
        str, typer.Option(help="Batch sizes of captured graphs, e.g. 1,2,4; empty: batches are not padded.")
    ] = "1,2,4,6,8,10",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
) -> None:
    """M of the dense linears and rows an expert in decode; the defaults are the reference deployment.

    The lists it prints are what `tilewatch run A B C --axis` and `tilewatch run D --axis` take.
    """
    from tilewatch.tasks.analyse.savings.operating_points import Deployment, operating_points

    with told():
        sizes = tuple(values_of("--graph-sizes", graph_sizes)) if graph_sizes else ()
        found = operating_points(Deployment(concurrency, ranks, tokens, experts, top_k, sizes))
    dense, expert = (",".join(map(str, axis)) for axis in (found.dense_m, found.expert_axis))
    kept = found.m_e_share >= _LEAST_SHARE
    histogram = pa.table({"m_e": found.m_e[kept], "share_of_experts": found.m_e_share[kept]})
    if not (as_json or as_csv):
        out.print(f"{found.requests_per_rank} requests a rank; M of the dense linears: --axis {dense}")
        out.print(f"rows an expert: {found.mean_m_e:g} in the mean, 5 to 95 %: --axis {expert}")
    show_table(histogram, as_json=as_json, as_csv=as_csv)
