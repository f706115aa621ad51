"""What others wrote, on one line that neither steers a terminal nor forges a line of a log."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.lines import (
    counted,
    each_line,
    encodable,
    excerpt,
    no_command,
    one_line,
    terminal_json,
)


@given(st.text())
def test_nothing_that_controls_gets_through(text: str) -> None:
    line = one_line(text)
    assert not [char for char in line if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs")]
    assert len(each_line(text).split("\n")) == len(text.split("\n"))


@pytest.mark.parametrize(
    "text, line",
    [
        ("plain", "plain"),
        ("a\nb\r\nc\td", "a b c d"),
        ("\x1b[31mred\x1b]0;title\x07", "\ufffd[31mred\ufffd]0;title\ufffd"),
        ("\x9b31m", "\ufffd31m"),
        ("a\rERROR", "a\ufffdERROR"),
        ("a\u2028b\x85c", "a\ufffdb\ufffdc"),
        ("\u202eevil", "\ufffdevil"),
        ("数据 👩\u200d🔬", "数据 👩\u200d🔬"),
    ],
)
def test_harmless_text_stays_and_the_rest_is_shown_as_what_it_is(text: str, line: str) -> None:
    assert one_line(text) == line


@given(st.text())
def test_json_for_a_terminal_is_the_same_json(text: str) -> None:
    written = terminal_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(written) == {text: text}
    assert not [char for char in written if unicodedata.category(char) == "Cc"]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("::set-output name=a::b", ": :set-output name=a::b"),
        ("fine\n  ::error::no\nfine", "fine\n  : :error::no\nfine"),
        ("answer ##[add-mask]x", "answer # #[add-mask]x"),
        ("##vso[task.setvariable variable=a]b", "# #vso[task.setvariable variable=a]b"),
        ("##teamcity[buildStatus]", "# #teamcity[buildStatus]"),
        ("###[x", "## #[x"),
        ("std::string, ## heading, a ::b", "std::string, ## heading, a ::b"),
    ],
)
def test_a_line_is_no_command_to_a_ci_system(text: str, shown: str) -> None:
    assert no_command(text) == shown
    assert no_command(shown) == shown


def test_an_excerpt_is_one_line_and_says_when_it_is_cut() -> None:
    assert excerpt(" two\n  words \x1b ", 40) == "two words \ufffd"
    assert excerpt("12345", 5) == "12345" and excerpt("123456", 5) == "12345…"


@pytest.mark.parametrize(
    "encoding, line",
    [
        ("utf-8", "\u00b10 \u2192 \u22121\u2026 \u9519"),
        ("ascii", "+-0 -> -1... \\u9519"),
        ("latin-1", "\u00b10 -> -1... \\u9519"),
        ("gbk", "\u00b10 \u2192 -1\u2026 \u9519"),
    ],
)
def test_what_an_encoding_cannot_hold_is_written_in_ascii(encoding: str, line: str) -> None:
    assert encodable("\u00b10 \u2192 \u22121\u2026 \u9519", encoding) == line


@given(st.text())
def test_any_text_becomes_encodable(text: str) -> None:
    encodable(text, "ascii").encode("ascii")


def test_a_number_and_its_noun_agree():
    assert [counted(n, "row") for n in (0, 1, 2, 1000)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "1,000 rows",
    ]


def test_what_follows_a_number_and_its_noun_agrees_too():
    said = [counted(n, "row", "was", "were") for n in (0, 1, 2)]
    assert said == ["0 rows were", "1 row was", "2 rows were"]
