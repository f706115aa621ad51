"""Endpoints in every form users write them, and the value that carries them."""

import pytest

from agentloop_experiment_sdk.cloud.access import (
    AccessKey,
    CloudAccess,
    Endpoint,
    access_key,
    parse_endpoint,
)
from agentloop_experiment_sdk.errors import ConfigurationError, CredentialsError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("agentloop.example.com", "https://agentloop.example.com"),
        ("agentloop.example.com/", "https://agentloop.example.com"),
        ("example.com:8443", "https://example.com:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTPS://Example.com", "https://example.com"),
        ("https://example.com:443/", "https://example.com:443"),
        ("  cn-hangzhou.log.aliyuncs.com\n", "https://cn-hangzhou.log.aliyuncs.com"),
        ("localhost", "https://localhost"),
        ("http://[::1]:9000", "http://[::1]:9000"),
        ("[2001:db8::1]:443", "https://[2001:db8::1]:443"),
        ("2001:db8::1", "https://[2001:db8::1]"),
        ("my_host", "https://my_host"),
    ],
)
def test_every_documented_form_is_read(text, url):
    assert parse_endpoint(text).url == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "ftp://example.com",
        "https://",
        "https:///path",
        "example.com/api",
        "http://example.com?x=1",
        "http://example.com#top",
        "example.com:notaport",
        "example.com:0",
        "example.com:99999",
        "exa mple.com",
        "http://127.0\n.0.1:8080",
        "http://127.0\t.0.1:8080",
        "exam\rple.com",
        "a\nb",
        "example\x00.com",
        "example\u200b.com",
        "-example.com",
        "bücher.example",
        "http://[::1",
        "[::1]x",
        None,
        7,
    ],
)
def test_a_malformed_endpoint_is_named_with_its_setting(text):
    with pytest.raises(ConfigurationError, match="sls_endpoint"):
        parse_endpoint(text, "sls_endpoint")


def test_a_password_in_an_endpoint_is_refused_and_not_repeated():
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoint("https://alice:pa55@example.com", "agentloop_endpoint")
    assert "pa55" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("LOCALHOST", True),
        ("proj.localhost", True),
        ("example.com", False),
        ("128.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
    ],
)
def test_loopback_is_told_from_other_hosts(host, local):
    assert Endpoint("http", host).is_loopback is local


def test_without_endpoints_the_region_decides():
    access = CloudAccess("cn-hangzhou", None, None, AccessKey("a", "b"))
    assert access.agentloop.url == "https://agentloop.cn-hangzhou.aliyuncs.com"
    assert access.sls.url == "https://cn-hangzhou.log.aliyuncs.com"


def test_given_endpoints_win():
    access = CloudAccess(
        "cn-hangzhou", "http://127.0.0.1:1", "sls.example.com", AccessKey("a", "b")
    )
    assert access.agentloop.url == "http://127.0.0.1:1"
    assert access.sls.url == "https://sls.example.com"


def test_repr_shows_no_key_secret_or_token():
    key = AccessKey("the-key-id", "the-secret", "the-token")
    shown = repr(key) + repr(CloudAccess("r", None, None, key))
    for hidden in ("the-key-id", "the-secret", "the-token"):
        assert hidden not in shown


def test_keys_are_their_own_provider():
    key = AccessKey("id", "secret", "token").get_credentials()
    assert (key.get_access_key_id(), key.get_access_key_secret()) == ("id", "secret")
    assert key.get_security_token() == "token"
    assert key.get_provider_name() == "static_sts"
    assert AccessKey("id", "secret").get_provider_name() == "static_ak"


NAMES = ("ID", "SECRET", "TOKEN")


def test_white_space_around_a_key_is_dropped():
    key = access_key((" id\n", "secret ", None), NAMES, "a file")
    assert (key.access_key_id, key.access_key_secret, key.security_token) == ("id", "secret", None)


@pytest.mark.parametrize("values", [("id", "", None), ("id", None, "token"), (None, "secret", "t")])
def test_half_a_pair_names_both_halves_and_no_value(values):
    with pytest.raises(CredentialsError, match="Half a pair") as caught:
        access_key(values, NAMES, "a file")
    assert "ID" in str(caught.value) and "SECRET" in str(caught.value)


@pytest.mark.parametrize(
    "values", [("i d", "s", None), ("id", "s\x00", None), ("id", "s", "t\u4e2d")]
)
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(values):
    with pytest.raises(CredentialsError, match="Copy it again"):
        access_key(values, NAMES, "a file")


def test_no_pair_is_no_key_even_with_a_token():
    assert access_key((None, "", "token"), NAMES, "a file") is None
