"""From options and environment to a config; precedence: option, results directory, environment."""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import ConfigurationError
from ..plan.config import AgentLoopConfig
from ..plan.connection import Connection

# setting of AgentLoopConfig: (attribute of the options, option, environment variable)
_PLACES = {
    "agent_space": ("space", "--space", "AGENTLOOP_SPACE"),
    "experiment_plan_id": ("plan", "--plan", "AGENTLOOP_PLAN_ID"),
    "region_id": ("region", "--region", "AGENTLOOP_REGION"),
    "project": ("project", "--project", "AGENTLOOP_PROJECT"),
    "agentloop_endpoint": ("agentloop_endpoint", "--agentloop-endpoint", "AGENTLOOP_ENDPOINT"),
    "sls_endpoint": ("sls_endpoint", "--sls-endpoint", "AGENTLOOP_SLS_ENDPOINT"),
}
_KEYS = ("access_key_id", "access_key_secret", "security_token")
_OF_CONNECTION = ("agent_space", "region_id", "agentloop_endpoint", "sls_endpoint")


def connection_of(options: argparse.Namespace) -> Connection:
    """The connection that options and environment describe.

    Raises:
        ConfigurationError: Something is missing or cannot be used.
    """
    places = {name: _PLACES[name] for name in _OF_CONNECTION}
    settings = _stated(options, places, {})
    _check_complete(settings, ("agent_space", "region_id"), "")
    return Connection(**settings, **_keys(options))


def config_of(
    options: argparse.Namespace, known: Optional[Mapping[str, Any]] = None
) -> AgentLoopConfig:
    """The config that options, a results directory and the environment describe.

    Args:
        options: The parsed options.
        known: Settings of the results directory that is continued.

    Raises:
        ConfigurationError: Something is missing or cannot be used.
    """
    settings = _stated(options, _PLACES, known or {})
    required = ("agent_space", "experiment_plan_id", "region_id")
    _check_complete(settings, required, " Without an account, use --local FILE.")
    return AgentLoopConfig(**settings, **_keys(options), **dataset_settings(options, known or {}))


def dataset_settings(options: argparse.Namespace, known: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of a config that say how the dataset is read and the experiment is called."""
    settings = {
        "max_rows": options.max_rows,
        "ground_truth_field": options.ground_truth_field,
        "experiment_name": options.experiment_name or known.get("experiment_name"),
    }
    return {name: value for name, value in settings.items() if value is not None}


def settings_of(meta: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of a config that ``evaluation_meta.json`` keeps."""
    identity, plan = meta.get("identity") or {}, meta.get("plan") or {}
    found = {
        "agent_space": identity.get("agent_space"),
        "experiment_plan_id": identity.get("plan_id"),
        "region_id": identity.get("region_id"),
        "experiment_name": identity.get("experiment_name"),
        "project": plan.get("project"),
        "agentloop_endpoint": plan.get("agentloop_endpoint"),
        "sls_endpoint": plan.get("sls_endpoint"),
    }
    return {name: value for name, value in found.items() if value}


def _stated(
    options: argparse.Namespace,
    places: Mapping[str, Tuple[str, str, str]],
    known: Mapping[str, Any],
) -> Dict[str, Any]:
    settings: Dict[str, Any] = {}
    for name, (attribute, _, variable) in places.items():
        value = getattr(options, attribute) or known.get(name) or os.environ.get(variable)
        if value:
            settings[name] = value
    return settings


def _check_complete(settings: Mapping[str, Any], required: Tuple[str, ...], hint: str) -> None:
    missing: List[str] = [
        "{} (or {})".format(*_PLACES[name][1:]) for name in required if name not in settings
    ]
    if missing:
        raise ConfigurationError("Give {}.{}".format(", ".join(missing), hint))


def _keys(options: argparse.Namespace) -> Dict[str, Any]:
    return {name: getattr(options, name) for name in _KEYS if getattr(options, name)}
