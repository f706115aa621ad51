"""What every test can rely on: no credentials, endpoints or proxies of the machine it runs on."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Dict

import pytest
from hypothesis import settings

_FOREIGN = ("AGENTLOOP_", "ALIBABA_CLOUD_", "ALICLOUD_", "OTEL_", "OPENAI_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_KEPT = "TESTS_MACHINE"


def _leave_the_machine_outside() -> None:
    """Done once: each xdist worker inherits what is set here."""
    if _KEPT in os.environ:
        return
    kept = {name: value for name, value in os.environ.items() if name.upper() in _PROXIES}
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in kept:
            del os.environ[name]
    for name in ("HOME", "USERPROFILE"):
        kept[name] = os.path.expanduser("~")
        os.environ[name] = _home.name
    os.environ[_KEPT] = json.dumps(kept)


_home = tempfile.TemporaryDirectory(prefix="tests-home-")  # without profiles; removed at exit
_leave_the_machine_outside()

# no example is slow by itself, but a shared machine may be; CI repeats the same examples
settings.register_profile("tests", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tests")


@pytest.fixture(scope="session")
def machine_environment() -> Dict[str, str]:
    """The environment with the machine's home and proxies, for tools that need the network."""
    return dict(os.environ, **json.loads(os.environ[_KEPT]))
