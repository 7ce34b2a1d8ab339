"""What the archive holds, one listing a kind of thing."""

from __future__ import annotations

from tilewatch.tasks.publish.site.listing import Column, Listing

_NOTHING_MEASURED = (
    "Nothing is archived yet: `tilewatch run A --preset smoke` measures, "
    "`tilewatch ingest FOLDER` takes what exists."
)

RUNS = Listing(
    "/runs",
    "Runs",
    "Everything measured, newest first.",
    """SELECT run_id, experiment, build, preset, agent, device_class, host, evidence, status, status_reason,
       control_status, planned_points, missing_points, sample_count, quarantined_rows, started_ns,
       ended_ns - started_ns AS duration_ns FROM runs""",
    (
        Column("run_id", "Run", "code", "/runs/{run_id}"),
        Column("experiment", "Experiment"),
        Column("build", "Build", "label", "/builds/{build}"),
        Column("device_class", "Device class"),
        Column("preset", "Preset"),
        Column("evidence", "Evidence", "evidence"),
        Column("status", "Status", "state"),
        Column("control_status", "A/A control", "state"),
        Column("planned_points", "Points", "number"),
        Column("missing_points", "Missing", "number"),
        Column("quarantined_rows", "Refused rows", "number"),
        Column("started_ns", "Started", "time"),
        Column("duration_ns", "Took", "duration"),
    ),
    ("experiment", "build", "device_class", "agent", "evidence", "status"),
    "started_ns DESC, experiment",
    _NOTHING_MEASURED,
)

CLIFFS = Listing(
    "/cliffs",
    "Cliffs",
    "Where latency jumps along an axis, the largest first, and whether the observed tiling explains it.",
    """SELECT c.*, r.device_class, abs(ln(ratio)) AS size FROM cliffs c
       LEFT JOIN (SELECT DISTINCT run_id, experiment, device_class FROM runs) r USING (run_id, experiment)""",
    (
        Column("experiment", "Experiment"),
        Column("arm", "Arm"),
        Column("curve", "Curve", link="/curves/{run_id}/{experiment}"),
        Column("before", "From", "number"),
        Column("after", "To", "number"),
        Column("ratio", "Ratio", "ratio"),
        Column("before_ns", "Before", "duration"),
        Column("after_ns", "After", "duration"),
        Column("class", "Class", "state"),
        Column("explanation", "Explained", "state"),
        Column("sentence", "Why"),
        Column("evidence", "Evidence", "evidence"),
        Column("build", "Build", "label", "/builds/{build}"),
        Column("run_id", "Run", "code", "/runs/{run_id}"),
    ),
    ("experiment", "arm", "class", "explanation", "build", "device_class", "evidence"),
    "class IN ('none', 'unrefined'), size DESC NULLS LAST, experiment, arm, curve, before, run_id",
    "No run of the archive has a cliff.",
)

SERIES = Listing(
    "/series",
    "Series",
    "What happened to each point over the builds: steps, values outside the fence, new environments.",
    """SELECT s.*, p.linear, p.axis_value FROM series s
       LEFT JOIN points p USING (run_id, experiment, arm, point_id) WHERE s.event <> 'none'""",
    (
        Column("event", "Event", "state"),
        Column("experiment", "Experiment"),
        Column("arm", "Arm"),
        Column("linear", "Linear"),
        Column("axis_value", "M", "number", "/points/{experiment}/{arm}/{point_id}"),
        Column("value_ns", "Value", "duration"),
        Column("reference_ns", "Before", "duration"),
        Column("ratio", "Ratio", "ratio"),
        Column("fence_ratio", "Fence", "ratio"),
        Column("evidence", "Evidence", "evidence"),
        Column("build", "Build", "label", "/builds/{build}"),
        Column("run_id", "Run", "code", "/runs/{run_id}"),
        Column("started_ns", "Measured", "time"),
    ),
    ("event", "experiment", "arm", "linear", "build", "evidence"),
    "started_ns DESC, experiment, arm, point_id",
    "Nothing happened over the archived builds.",
)

LEDGER = Listing(
    "/ledger",
    "Ledger and break-even",
    "Which linears INT8 pays for, at which M: BF16 less INT8, DynamicQuant and other; answered rows first.",
    "SELECT *, outcome = 'unknown' AS open FROM ledger",
    (
        Column("linear", "Linear"),
        Column("m", "M", "number"),
        Column("k", "K", "number"),
        Column("n", "N", "number"),
        Column("input_kind", "Input"),
        Column("launch_mode", "Launch"),
        Column("t_bf16_ns", "BF16", "duration"),
        Column("t_int8_ns", "INT8", "duration"),
        Column("t_dynamic_quant_ns", "DynamicQuant", "duration"),
        Column("t_other_ns", "Other", "duration"),
        Column("net_ns", "Net gain", "duration"),
        Column("net_low_ns", "Low", "duration"),
        Column("net_high_ns", "High", "duration"),
        Column("outcome", "Outcome", "state"),
        Column("evidence", "Evidence", "evidence"),
        Column("build", "Build", "label", "/builds/{build}"),
        Column("run_id", "Run", "code", "/runs/{run_id}"),
    ),
    ("linear", "input_kind", "outcome", "build", "evidence"),
    "open, run_id DESC, linear, input_kind, m",
    "No run of the archive has a BF16 and an INT8 arm: `tilewatch run A B` measures both.",
)

COMPARISONS = Listing(
    "/comparisons",
    "Comparisons",
    "Published comparisons, newest version first, with how many points got slower or faster.",
    """SELECT baseline, candidate, version, any_value(build) AS build, any_value(compared_by) AS compared_by,
       any_value(evidence) AS evidence, count(*) FILTER (verdict = 'SLOWER') AS slower,
       count(*) FILTER (verdict = 'FASTER') AS faster, count(*) FILTER (verdict = 'SAME') AS same,
       count(*) FILTER (verdict = 'UNDECIDED') AS undecided, count(*) FILTER (verdict = 'MISSING') AS missing,
       max(ratio) FILTER (verdict = 'SLOWER') AS worst, any_value(analysis_version) AS analysis_version,
       any_value(control_status) AS control_status,
       max(list_max(candidate_run_ids)) AS newest FROM comparisons GROUP BY baseline, candidate, version""",
    (
        Column("baseline", "Baseline", "label"),
        Column("candidate", "Candidate", "label", "/comparisons/{baseline}/{candidate}/{version}"),
        Column("version", "Version", "number"),
        Column("slower", "SLOWER", "number"),
        Column("worst", "Worst", "ratio"),
        Column("faster", "FASTER", "number"),
        Column("same", "SAME", "number"),
        Column("undecided", "UNDECIDED", "number"),
        Column("missing", "MISSING", "number"),
        Column("control_status", "A/A control", "state"),
        Column("compared_by", "By"),
        Column("evidence", "Evidence", "evidence"),
    ),
    ("baseline", "candidate", "compared_by", "evidence"),
    "newest DESC NULLS LAST, version DESC, baseline, candidate",
    "No comparison is published: `tilewatch compare BASE CANDIDATE` publishes one.",
)

BUILDS = Listing(
    "/builds",
    "Builds",
    "The software under test, newest first.",
    """SELECT build, any_value(build_id) AS build_id, count(DISTINCT run_id) AS runs,
       max(started_ns) AS last_ns,
       string_agg(DISTINCT experiment, ' ' ORDER BY experiment) AS experiments,
       string_agg(DISTINCT device_class, ' ' ORDER BY device_class) AS device_classes,
       any_value(evidence) AS evidence, sum(missing_points) AS missing FROM runs GROUP BY build""",
    (
        Column("build", "Build", "label", "/builds/{build}"),
        Column("build_id", "Identity", "code"),
        Column("runs", "Runs", "number"),
        Column("experiments", "Experiments"),
        Column("device_classes", "Device classes"),
        Column("missing", "Missing points", "number"),
        Column("evidence", "Evidence", "evidence"),
        Column("last_ns", "Last run", "time"),
    ),
    ("evidence",),
    "last_ns DESC, build",
    _NOTHING_MEASURED,
)

QUARANTINE = Listing(
    "/quarantine",
    "Quarantine",
    "Rows that were refused, with file, line, field and reason; nothing of them is lost.",
    """SELECT rule, "table", field, value, reason, source_file, source_line, raw_text, stage, build, run_id,
       capture_id FROM quarantine""",
    (
        Column("rule", "Rule", "code"),
        Column("table", "Table", link="/data/{table}"),
        Column("field", "Field"),
        Column("value", "Value", "code"),
        Column("reason", "Reason"),
        Column("source_file", "File", link="/captures/{capture_id}"),
        Column("source_line", "Line", "number"),
        Column("raw_text", "Raw row", "code"),
        Column("build", "Build"),
        Column("run_id", "Run", "code", "/runs/{run_id}"),
    ),
    ("rule", "table", "stage", "build"),
    "run_id DESC NULLS LAST, source_file, source_line",
    "No row was ever refused.",
)

SERVING = Listing(
    "/serving",
    "Serving",
    "Experiment E: every launch of a server, newest first; a failed one says at which stage and why.",
    "SELECT * FROM launches",
    (
        Column("arm", "Arm"),
        Column("build", "Build", "label", "/builds/{build}"),
        Column("status", "Status", "state"),
        Column("failure_stage", "Failed at"),
        Column("failure_reason", "Why"),
        Column("role", "Role"),
        Column("arm_proved", "Arm proved", "state"),
        Column("weight_format", "Format"),
        Column("client", "Client"),
        Column("load_id", "Load", "code"),
        Column("ready_after_ns", "Ready after", "duration"),
        Column("evidence", "Evidence", "evidence"),
        Column("started_ns", "Started", "time"),
        Column("run_id", "Run", "code", "/runs/{run_id}"),
        Column("capture_id", "Capture", "code", "/captures/{capture_id}"),
    ),
    ("arm", "build", "status", "role"),
    "started_ns DESC, capture_id",
    "No server was measured: `tilewatch run E` does.",
)

PROFILES = Listing(
    "/profiles",
    "Profiles",
    "Ingested captures: profiles, logs and serving results of other programs.",
    """SELECT capture_id, build, status, device, device_class, host, file_count, size_bytes, started_ns,
       evidence, raw_prefix FROM captures WHERE role = 'ingested'""",
    (
        Column("capture_id", "Capture", "code", "/captures/{capture_id}"),
        Column("build", "Build"),
        Column("device", "Device"),
        Column("host", "Host"),
        Column("file_count", "Files", "number"),
        Column("size_bytes", "Bytes", "number"),
        Column("evidence", "Evidence", "evidence"),
        Column("started_ns", "Started", "time"),
    ),
    ("build", "device_class"),
    "started_ns DESC, capture_id",
    "No profile was ingested: `tilewatch ingest FOLDER` takes profiler output, logs and serving results.",
)

LISTINGS = {
    listing.path: listing
    for listing in (RUNS, COMPARISONS, BUILDS, CLIFFS, SERIES, LEDGER, SERVING, PROFILES, QUARANTINE)
}
"""Every listing by its path."""
