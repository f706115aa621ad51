"""Messages of the library name Python arguments; here they name options."""

from __future__ import annotations

import re

_OPTIONS = {
    "resume=True": "--resume",
    "resume=False": "--no-resume",
    "resume=None": "no --resume",
    "retry_failed=True": "--retry-failed",
    "allow_stale=True": "--allow-stale",
    "result_dir": "--result-dir",
    "n_repeat": "--n-repeat",
    "n_workers": "--n-workers",
    "max_rps": "--max-rps",
    "row_retries": "--row-retries",
    "drain_timeout": "--drain-timeout",
    "task_timeout": "--task-timeout",
    "max_failures": "--max-failures",
    "stop_if_first": "--stop-if-first",
    "max_rows": "--max-rows",
    "limit and item_ids": "--limit and --item-id",
    "ground_truth_field": "--ground-truth-field",
    "access_key_id": "--access-key-id",
    "access_key_secret": "--access-key-secret",
    "agent_space": "--space",
    "experiment_plan_id": "--plan",
    "region_id": "--region",
    "agentloop_endpoint": "--agentloop-endpoint",
    "sls_endpoint": "--sls-endpoint",
    "AgentLoopConfig": "the command",
}
# not inside a longer name, a path or an address
_NAMES = re.compile(r"(?<![\w./-])({})(?![\w/-])".format("|".join(map(re.escape, _OPTIONS))))


def in_options(text: str) -> str:
    """``text`` with each Python argument replaced by the option that sets it."""
    return _NAMES.sub(lambda match: _OPTIONS[match.group()], text)
