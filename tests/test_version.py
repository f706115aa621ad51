"""The version is said in one place, and the changelog tells of it."""

from __future__ import annotations

import datetime
import importlib.metadata
import pathlib
import re
from typing import List, Tuple

import agentloop_experiment_sdk as sdk

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})$")
# https://keepachangelog.com/en/1.1.0/
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def headings(level: int) -> List[str]:
    return re.findall(r"^{} .*$".format("#" * level), CHANGELOG, re.M)


def releases() -> List[Tuple[Tuple[int, ...], datetime.date]]:
    """(version, date) of every release, in the order of the file."""
    found = []
    for line in headings(2)[1:]:
        match = HEADING.match(line)
        assert match, "{!r} is not of the form '## [1.2.3] - 2026-01-31'".format(line)
        *version, date = match.groups()
        found.append((tuple(map(int, version)), datetime.date(*map(int, date.split("-")))))
    return found


def test_the_newest_release_of_the_changelog_is_this_version() -> None:
    assert ".".join(map(str, releases()[0][0])) == sdk.__version__


def test_the_installed_distribution_has_this_version() -> None:
    installed = importlib.metadata.version("agentloop-experiment-sdk")
    assert installed == sdk.__version__, 'after raising it, pip install -e ".[dev]" again'


def test_the_build_takes_the_version_from_the_package_alone() -> None:
    assert 'dynamic = ["version"]' in PYPROJECT
    assert re.findall(r"^version = .*$", PYPROJECT, re.M) == [
        'version = { attr = "agentloop_experiment_sdk._version.__version__" }'
    ]


def test_the_changelog_begins_with_what_is_not_released_and_goes_back_in_time() -> None:
    assert headings(1) == ["# Changelog"]
    assert headings(2)[0] == "## [Unreleased]"
    assert releases() == sorted(set(releases()), reverse=True)


def test_changes_are_sorted_under_the_kinds_of_keep_a_changelog() -> None:
    for part in re.split(r"^## .*$", CHANGELOG, flags=re.M)[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.M)
        assert kinds == [kind for kind in KINDS if kind in kinds]
        assert not re.search(r"^#{4,} ", part, re.M)
