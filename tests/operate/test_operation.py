"""A fleet that runs by itself: a schedule fires, a changed build starts the upgrade run, an agent drains."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.conftest import Home
from tests.operate.conftest import DIES, NEW, OLD, QUEUE, Server, ended, started, wait_for
from tests.operate.team import Team
from tilewatch.flows.agents.journal import ASKED, TAKEN, Journal
from tilewatch.flows.agents.worker import taken_by
from tilewatch.flows.deployments.automations import PATIENCE
from tilewatch.infra.objects import Endpoint, ObjectStore

PARTS = {"run_id": "none", "blocks": ["A-0"], "queue": DIES[2]}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""The first test waits for server, fleet and agents, the others for flows: longer on a loaded machine."""


def test_the_server_of_a_team_wants_a_login_and_keeps_its_data_in_postgresql(site: Team) -> None:
    if not site.database.startswith("postgresql"):
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    address = site.database.replace("+asyncpg", "")
    query = ["psql", address, "-tAc", "SELECT count(*) FROM pg_tables WHERE tablename = 'flow_run'"]
    assert subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip() == "1"
    assert httpx.post(f"{site.api_url}/flows/filter", json={}).status_code == 401


def test_the_server_listens_on_loopback_alone(site: Team) -> None:
    port = int(site.api_url.removesuffix("/api").rpartition(":")[2])
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    local = [line.split()[1] for lines in tables for line in lines if line.split()[3] == "0A"]
    assert [address for address in local if address.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_deploying_twice_changes_nothing(measured: Home, fleet: Path, server: Server) -> None:
    def all_of_it() -> tuple[list[Any], ...]:
        named = [sorted(one["name"] for one in server.find(k)) for k in ("work_pools", "deployments")]
        return (*named, sorted(one["name"] for one in server.find("automations")))

    before = all_of_it()
    measured.run("deploy", str(fleet))
    assert all_of_it() == before
    assert len(server.deployment("regression/often")["schedules"]) == 1
    (pool,) = [p for p in server.find("work_pools") if p["name"] == "operate"]
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 1)


def test_the_form_of_a_deployment_describes_every_parameter(fleet: Path, server: Server) -> None:
    flows = ("sweep", "regression", "cann_upgrade", "ingest")
    names = [f"{flow}/{QUEUE}" for flow in flows] + ["compare/operate", "reanalyse/operate"]
    for name in names:
        schema = server.deployment(name)["parameter_openapi_schema"]
        assert all(
            field.get("description") or "$ref" in field or "allOf" in field
            for model in schema["definitions"].values()
            for field in model["properties"].values()
        )
    wrong = {"request": {"experiments": ["A"], "preset": "enormous"}}
    assert server.start(f"sweep/{QUEUE}", parameters=wrong).status_code == 409


def test_the_schedule_fires_and_the_regression_leaves_its_outcome(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    wait_for(lambda: any(run["run_count"] for run in server.runs("regression/often")))
    server.pause("regression/often")
    run = ended(server, agent, "regression/often")
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert run["auto_scheduled"]
    rows = measured.rows("SELECT DISTINCT baseline FROM comparisons WHERE evidence = 'measured'")
    assert rows == [{"baseline": "base"}]
    assert "comparisons/base/" in server.artifact("regression")["data"]
    told = [
        json.loads(one["data"]) for one in server.find("artifacts", artifacts={"key": {"any_": ["counts"]}})
    ]
    counts = [{row["what"]: row["count"] for row in rows} for rows in told]
    assert any(c["captures"] == 5 and c["points"] == 1 and c["voids"] == 0 for c in counts), counts


def test_a_changed_build_is_measured_confirmed_and_explained_without_a_hand(
    server: Server, agents: list[subprocess.Popen[str]], site: Team
) -> None:
    run = ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert run["created_by"]["type"] == "AUTOMATION"
    request = run["parameters"]["request"]
    assert (request["old_cann"], request["new_cann"]) == ("8.5.0", "9.0.0")
    told = server.artifact("cann-upgrade")
    assert f"SLOWER than in {OLD}, confirmed in a second lease" in told["data"]
    assert "predicted: DynamicQuant block_dim 16 → 4" in told["data"]
    assert told["data"].count("dynamic_quant wq_a") <= 3 and "tilewatch compare" in told["data"]
    predicted = server.artifact("cann-upgrade-predictions")
    assert "predicted for CANN 8.5.0 → 9.0.0" in predicted["description"]
    wait_for(lambda: bool(site.chat))
    assert site.chat[0] == {"text": told["data"]}, "the chat is told the same"


def test_status_counts_and_the_event_log_names_runs_and_captures(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    run = ended(server, agent, "regression/often")
    counts = json.loads(measured.run("status", "--json"))
    captures = measured.rows("SELECT capture_id, run_id FROM captures")
    assert 0 < counts["captures"] <= len(captures) and counts["points"] > 0
    assert {"quarantined rows", "voids", "waits for the lock"} <= set(counts)
    log = (measured.path / "logs" / "tilewatch.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    ids = {row["capture_id"]: row["run_id"] for row in captures}
    told = [line for line in lines if line["event"] == "measured" and line["capture_id"] in ids]
    assert len(told) > 10 and all(ids[line["capture_id"]] == line["run_id"] for line in told)
    assert any(line.get("flow_run_id") == run["id"] for line in told)


def test_a_sweep_of_several_dies_goes_on_without_a_lost_one(
    measured: Home, server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    asked = {**server.deployment("sweep/simulated")["parameters"]["request"], "patience_s": 15}
    assert asked["devices"] == list(DIES)
    run = (
        server.start("sweep/simulated", parameters={"request": {**asked, "seed": 9}})
        .raise_for_status()
        .json()
    )
    assert server.done(run)["type"] == "COMPLETED", server.state(run)["message"]
    (found,) = measured.rows(
        "SELECT r.status, r.planned_processes AS planned, count(*) AS captures, "
        "count(DISTINCT (c.arm, c.role, c.kind, c.process_index)) AS processes, "
        "list_sort(list(DISTINCT c.device)) AS dies FROM runs r JOIN captures c ON r.run_id = c.run_id "
        "WHERE r.seed = 9 GROUP BY ALL"
    )
    print("\nrun, planned, captures, lost, doubled:", found["planned"], found["captures"],
          found["planned"] - found["processes"], found["captures"] - found["processes"])  # fmt: skip
    assert found["planned"] == found["captures"] == found["processes"]
    # Slow ones are dealt out again too: on a loaded machine one die may have measured all of it.
    assert {die.rpartition(" ")[2] for die in found["dies"]} <= {"1", "2"}
    dealt = json.loads(server.artifact("fan-out")["data"])
    assert {"device": DIES[2], "what": "finished nothing for 15 s"} in dealt


def test_a_person_at_a_prompt_shares_a_sweep_over_two_dies(
    measured: Home, server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    asked = ("--agent", "simulated", "--build", NEW, "--seed", "11", "--device", DIES[0], "--device", DIES[1])
    said = measured.run("run", "A", "--preset", "smoke", "--arm", "standalone", "--processes", "5", *asked)
    (found,) = measured.rows(
        "SELECT r.run_id, r.status, r.planned_processes AS planned, count(*) AS captures "
        "FROM runs r JOIN captures c ON r.run_id = c.run_id WHERE r.seed = 11 GROUP BY ALL"
    )
    assert f"run {found['run_id']}, build {NEW}" in said
    assert (found["status"], found["planned"]) == ("complete", found["captures"])
    spool = measured.run("prune", "--older-than", "0", "--no-raw", "--spool")
    assert "may go: " in spool and "run folders" in spool


def test_a_regression_without_an_approved_baseline_fails_as_not_armed_before_it_measures(
    measured: Home, server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    asked = {"experiments": ["A"], "preset": "smoke", "agent": "simulated", "soc": "Ascend910B1"}
    before = len(measured.manifests())
    run = server.start(f"regression/{DIES[0]}", parameters={"request": {"sweep": asked}}).raise_for_status()
    state = server.done(run.json())
    assert state["type"] == "FAILED" and "not armed" in state["message"]
    assert len(measured.manifests()) == before


def test_two_flows_that_publish_the_same_comparison_leave_one(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    ended(server, agent, "regression/often")
    (new,) = measured.rows("SELECT DISTINCT build FROM runs WHERE agent = 'cpu' AND build <> 'base'")
    both = [measured.start("compare", "base", new["build"]) for _ in range(2)]
    said = [one.communicate(timeout=200)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert all(f"comparisons/base/{new['build']}/v1" in text for text in said)
    rows = measured.rows(
        "SELECT version, count(*) AS rows, "
        "count(DISTINCT (experiment, candidate_arm, point_id, metric)) AS keys "
        f"FROM comparisons WHERE candidate = '{new['build']}' GROUP BY version"
    )
    print("\nversions, rows, doubled:", [(r["version"], r["rows"], r["rows"] - r["keys"]) for r in rows])
    assert len(rows) == 1 and rows[0]["rows"] == rows[0]["keys"] > 0


def test_no_secret_is_on_the_server_or_in_a_capture_report_or_log(
    measured: Home, server: Server, site: Team, agent: subprocess.Popen[str], seaweed: Endpoint
) -> None:
    ended(server, agent, "regression/often")
    kinds = ("logs", "artifacts", "flow_runs", "task_runs", "deployments", "work_pools", "automations")
    told = {kind: json.dumps(server.find(kind)) for kind in kinds}
    files = [path for path in measured.path.rglob("*") if path.is_file()]
    told |= {str(path): path.read_bytes().decode(errors="replace") for path in files}
    stored = ObjectStore(replace(seaweed, bucket=measured.environment["TILEWATCH_S3_BUCKET"]))
    raw = [item.key for item in stored.list("raw/")]
    told |= {key: stored.get(key).decode(errors="replace") for key in raw}
    assert len(told["logs"]) > 1000 and len(files) > 20 and len(raw) > 20 and len(site.secrets) == 4
    assert [where for where, text in told.items() if any(secret in text for secret in site.secrets)] == []


def test_an_agent_refuses_a_run_for_another_device_class(
    server: Server, agent: subprocess.Popen[str]
) -> None:
    run = server.start(f"sweep/{QUEUE}", tags=["device-class:Ascend950PR"]).raise_for_status().json()
    state = server.done(run)
    assert state["type"] == "CRASHED" and "this run is for Ascend950PR" in state["message"]


def test_drained_agents_begin_nothing_and_tell_of_the_new_build_when_they_go_on(
    measured: Home, server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    assert "nothing runs" in measured.run("agent", "drain", "--wait-s", "120")
    nothing = {"request": {"baseline": "no", "candidate": "no"}}
    run = server.start("compare/simulated", parameters=nothing).raise_for_status().json()
    (measured.path / "agents" / f"{DIES[1]}.build.json").write_text(json.dumps({"build_id": "0", "cann": ""}))
    server.disable(f"tilewatch: the build of {DIES[1]} changed")
    time.sleep(6)
    assert server.state(run)["type"] == "SCHEDULED", "three polls of the worker and it was left alone"
    measured.run("agent", "resume")
    assert server.done(run)["type"] == "FAILED", "there is no build called no"
    wait_for(lambda: bool(server.events("tilewatch.build.changed", f"tilewatch.device.{DIES[1]}")))
    (event,) = server.events("tilewatch.build.changed", f"tilewatch.device.{DIES[1]}")
    assert (event["payload"]["old_build_id"], event["payload"]["new_cann"]) == ("0", "9.0.0")


def test_an_agent_told_to_stop_leaves_no_run_in_running_and_no_process(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    whole = {"experiments": ["A"], "preset": "smoke", "arm": "standalone", "processes": 20}
    before = len(measured.manifests())
    run = server.start(f"sweep/{QUEUE}", parameters={"request": whole}).raise_for_status().json()
    wait_for(lambda: len(measured.manifests()) > before)
    agent.send_signal(signal.SIGTERM)
    agent.wait(timeout=90)
    assert agent.returncode == 0
    assert server.done(run)["type"] == "CRASHED"
    assert not [p for p in _commands() if str(measured.path) in p and "program/main.py" in p]


def test_what_a_killed_agent_had_taken_and_not_started_its_successor_runs_and_nothing_of_others(
    measured: Home, server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    ended(server, agents[1], f"cann_upgrade/{DIES[0]}")
    journal = Journal(measured.path / "agents", DIES[2])
    taken, asked = (nothing_to_do(server, f"part/{DIES[2]}") for _ in range(2))
    of_others = nothing_to_do(server, "compare/wrong")
    for run, noted, message in (
        (taken, TAKEN, ""), (asked, ASKED, taken_by(journal)), (of_others, ASKED, "taken by another agent"),
    ):  # fmt: skip
        server.put(run, "PENDING", message)
        journal.claim(run["id"], noted)
    with started(measured, 3):
        ends = [server.done(run)["type"] for run in (taken, asked)]
        assert ends == ["FAILED", "FAILED"], "they began, and there is no run of that name"
        assert server.state(of_others)["type"] == "PENDING"
    assert journal.runs() == {}
    server.put(of_others, "CANCELLED")


def test_a_run_that_a_dead_host_had_taken_is_queued_again_by_the_automation(
    server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    server.hasten("tilewatch: a run that was taken and not begun is queued again", 10)
    run = nothing_to_do(server, "compare/wrong")
    server.put(run, "PENDING", "taken by an agent of a host that is gone")
    waited_s = wait_for(lambda: server.state(run)["type"] == "SCHEDULED")
    print(f"\nqueued again after {waited_s:.0f} s: {server.state(run)['message']}")
    server.put(run, "CANCELLED")


def test_a_run_without_heartbeat_is_crashed_and_one_that_was_queued_again_is_left(
    server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    dead, waiting = (nothing_to_do(server, "compare/wrong") for _ in range(2))
    server.hasten("tilewatch: a run without heartbeat is crashed", 10)
    try:
        for run in (dead, waiting):
            server.put(run, "RUNNING")
            server.heartbeat(run)
        server.put(waiting, "SCHEDULED")
        wait_for(lambda: server.state(dead)["type"] == "CRASHED")
        time.sleep(5)
        assert server.state(waiting)["type"] == "SCHEDULED"
    finally:
        server.hasten("tilewatch: a run without heartbeat is crashed", PATIENCE.total_seconds())
        server.put(waiting, "CANCELLED")


def nothing_to_do(server: Server, deployment: str) -> dict[str, Any]:
    """A run of that deployment that ends as soon as it begins."""
    request = PARTS if deployment.startswith("part/") else {"baseline": "no", "candidate": "no"}
    started = server.start(deployment, parameters={"request": request})
    return dict(started.raise_for_status().json())


def test_an_approved_build_is_what_baseline_stands_for(measured: Home, fleet: Path) -> None:
    listed = json.loads(measured.run("baseline", "list", "--json"))
    of_cpu = next(row for row in listed if row["agent"] == "cpu")
    assert (of_cpu["build"], of_cpu["reason"], of_cpu["armed"], of_cpu["points"]) == (
        "base", "for the fleet", True, 1
    )  # fmt: skip
    assert of_cpu["approved_by"] and of_cpu["experiments"] == ["A"]
    measured.run("compare", "@baseline", "base", code=1)
    assert "stand for the same run" in measured.stderr


def test_an_approval_without_a_reason_or_of_an_unknown_build_is_refused(measured: Home) -> None:
    measured.run("baseline", "approve", "base", "--reason", " ", code=1)
    assert "a baseline needs a reason" in measured.stderr
    measured.run("baseline", "approve", "nosuch", "--reason", "x", code=1)
    assert "is neither an archived run nor a build" in measured.stderr


def test_an_agent_of_a_device_that_the_fleet_lacks_or_calls_something_else_does_not_start(
    measured: Home, fleet: Path
) -> None:
    measured.run("agent", "start", "--device", "7", code=3)
    assert "has no device" in measured.stderr and "tilewatch deploy" in measured.stderr
    measured.run("agent", "start", "--device", "0", "--host", "elsewhere", code=3)
    assert "the fleet says that elsewhere-0 is Ascend910C" in measured.stderr


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return found
