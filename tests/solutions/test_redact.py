from __future__ import annotations

from typing import Optional

import pytest

from agentloop_experiment_sdk.solutions.redact import (
    MASK,
    is_secret_name,
    redact_argv,
    redact_body,
    redact_error,
    redact_headers,
    redact_params,
    redact_text,
    redact_url,
    secret_values,
)

SECRET_NAMES = """
AUTHORIZATION authorization Proxy-Authorization Cookie Set-Cookie x-api-key Api-Key apikey apiKey
X-API-KEY X-Auth-Token X-Access-Token token access_token accessToken authToken id_token
client_secret clientSecret password passwd Password passphrase X-Amz-Security-Token
X-Amz-Signature Ocp-Apim-Subscription-Key access_key_secret accessKeySecret credentials
OPENAI_API_KEY GITHUB_TOKEN --api-key --token private-key auth X-Auth jwt pwd
"""

PLAIN_NAMES = """
Content-Type Accept X-Session-Id X-Request-Id max_tokens --max-tokens total_tokens prompt_tokens
x-ratelimit-remaining-tokens tokens tokenizer author Authority model idempotency-key key
traceparent baggage
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_credentials_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN_NAMES.split())
def test_names_of_counts_and_ids_are_no_credentials(name: str) -> None:
    assert not is_secret_name(name)


def test_headers_keep_their_names_and_lose_secret_values() -> None:
    headers = {"COOKIE": "sid=1", "X-Plain": "v", "Referer": "http://a:b@h/?token=t"}
    assert redact_headers(headers) == {
        "COOKIE": MASK,
        "X-Plain": "v",
        "Referer": "http://***@h/?token=***",
    }


def test_parameters_named_key_are_api_keys() -> None:
    assert redact_params({"key": "AIza", "q": [1], "api_key": "s"}) == {
        "key": MASK,
        "q": [1],
        "api_key": MASK,
    }


def test_a_body_is_masked_at_any_depth() -> None:
    body = {"a": [{"api_key": "s", "max_tokens": 5}], "password": 7, "b": ("x", {"token": "t"})}
    assert redact_body(body) == {
        "a": [{"api_key": MASK, "max_tokens": 5}],
        "password": 7,
        "b": ["x", {"token": MASK}],
    }
    assert body["a"] == [{"api_key": "s", "max_tokens": 5}]


def test_a_body_without_secrets_is_not_copied() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert redact_body(body) is body


@pytest.mark.parametrize(
    "url, shown",
    [
        ("http://alice:pa55@h:1/p?q=1#f", "http://***@h:1/p?q=1#f"),
        ("http://h/?api_key=1&q=2&key=3", "http://h/?api_key=***&q=2&key=***"),
        ("http://h/?api%5Fkey=1&flag&token=", "http://h/?api%5Fkey=***&flag&token="),
        ("http://h/a@b?c", "http://h/a@b?c"),
        ("not a url", "not a url"),
        ("", ""),
    ],
)
def test_a_url_loses_userinfo_and_secret_parameters(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    "argv, shown",
    [
        (["agent", "--api-key", "s3", "--q", "x"], ["agent", "--api-key", MASK, "--q", "x"]),
        (["--token=s3", "--max-tokens", "5"], ["--token=***", "--max-tokens", "5"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["--no-token", "prompt"], ["--no-token", "prompt"]),
        (["env", "OPENAI_API_KEY=s3", "run"], ["env", "OPENAI_API_KEY=***", "run"]),
        (["-H", "Authorization: Bearer s3"], ["-H", "Authorization: ***"]),
        (["-u", "alice:s3", "-u", "bob"], ["-u", "alice:***", "-u", "bob"]),
        (["http://a:s3@h/?key=s3"], ["http://***@h/?key=***"]),
        (["-H", "X-Plain: v"], ["-H", "X-Plain: v"]),
        (["Token: what is it?"], ["Token: what is it?"]),
        (["x", 7, "multi\nline: text"], ["x", "7", "multi\nline: text"]),
    ],
)
def test_a_command_line_is_masked_behind_secret_flags(argv: list, shown: list) -> None:
    assert redact_argv(argv) == shown


def test_known_secrets_are_scrubbed_from_text_longest_first() -> None:
    secrets = secret_values(
        {"Authorization": "Bearer abcdef123", "X": "plain-value"},
        {"api_key": "qq-77-qq", "q": "question"},
        "http://al:pa55%20word@h/?token=tt-88-tt&a=b",
    )
    text = "bad Bearer abcdef123, abcdef123, qq-77-qq, pa55%20word, pa55 word, tt-88-tt question"
    assert redact_text(text, secrets) == "bad ***, ***, ***, ***, ***, *** question"


def test_cookies_are_scrubbed_one_by_one_and_schemes_are_no_secrets() -> None:
    secrets = secret_values({"Cookie": "sid=zz-2222-zz; a=b", "Authorization": "Bearer abcdef1"})
    text = "Bearer what? not zz-2222-zz nor abcdef1"
    assert redact_text(text, secrets) == "Bearer what? not *** nor ***"


def test_short_values_are_not_scrubbed() -> None:
    assert secret_values({"X-Token": "abc"}) == []
    assert secret_values(None, None, "http://[bad?token=abcdefg") == []


@pytest.mark.parametrize(
    "text, shown",
    [
        ("sent Authorization: Bearer sk-12345678", "sent Authorization: Bearer ***"),
        ("basic understanding of tokens", "basic understanding of tokens"),
        ("see https://u:p@h/?sig=1.", "see https://***@h/?sig=***"),
    ],
)
def test_text_is_masked_by_its_form(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("x-api-key: zz1111zz", "x-api-key: ***"),
        ("{'Authorization': 'Bearer zz-11-zz', 'x-api-key': 'abcdefgh'}", None),
        ('OpenAI(api_key="sk-proj-abcdefgh", timeout=5)', 'OpenAI(api_key="***", timeout=5)'),
        ("password=hunter2hunter2&user=al", "password=***&user=al"),
        ("Unexpected token: expected a comma", "Unexpected token: expected a comma"),
        ("KeyError: 'token'", "KeyError: 'token'"),
        ("max_tokens: 1000000", "max_tokens: 1000000"),
        ("token = task.input['token1']", "token = task.input['token1']"),
        ("File 'x.py', line 12345678, in call", "File 'x.py', line 12345678, in call"),
        ("a" * 50000 + ":" + " " * 50000, None),
    ],
)
def test_an_error_text_loses_values_behind_secret_names(text: str, shown: Optional[str]) -> None:
    if shown is None:
        assert not {"zz-11-zz", "abcdefgh"} & set(redact_error(text).split("'"))
    else:
        assert redact_error(text) == shown
