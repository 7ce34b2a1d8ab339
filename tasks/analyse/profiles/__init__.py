"""Two profiles, one answer: groups, repetitions, matching by place and shape, verdicts, waterfall, causes."""
