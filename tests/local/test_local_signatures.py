"""Every request must carry the signature of an accepted key, in all three schemes."""

from __future__ import annotations

import time

import pytest
from alibabacloud_agentloop20260520 import models as m
from aliyun.log import auth
from official_clients import log_client, openapi_client, put

from agentloop_experiment_sdk.local import ServiceError
from agentloop_experiment_sdk.local.exchange import Request
from agentloop_experiment_sdk.local.signing import AccessKey, Verifier

SPACE = "local"
VERSIONS = ("v1", "v4")


def get_space(client):
    return client.get_agent_space(SPACE, m.GetAgentSpaceRequest())


def test_a_wrong_secret_is_refused_by_agentloop(local, code_of):
    client = openapi_client(local, access_key_secret="wrong")
    assert code_of(get_space, client) == (400, "SignatureDoesNotMatch")


def test_an_unknown_key_is_refused_by_agentloop(local, code_of):
    client = openapi_client(local, access_key_id="nobody")
    assert code_of(get_space, client) == (404, "InvalidAccessKeyId.NotFound")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_secret_is_refused_by_sls(local, code_of, version):
    client = log_client(local, version, accessKey="wrong")
    assert code_of(put, client, {"a": "1"}) == (401, "SignatureNotMatch")
    assert local.rows() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_key_is_refused_by_sls(local, code_of, version):
    client = log_client(local, version, accessKeyId="nobody")
    assert code_of(put, client, {"a": "1"}) == (401, "Unauthorized")


def test_a_signature_of_another_region_is_still_consistent(local):
    put(log_client(local, "v4", region="cn-hangzhou"), {"a": "1"})
    assert len(local.rows()) == 1


def test_a_token_is_demanded_where_a_key_has_one(local, code_of):
    local.set_access_key("sts", "secret", "token")
    keys = {"access_key_id": "sts", "access_key_secret": "secret"}
    assert get_space(openapi_client(local, security_token="token", **keys)).status_code == 200
    for wrong in ({}, {"security_token": "other"}):
        client = openapi_client(local, **keys, **wrong)
        assert code_of(get_space, client) == (403, "InvalidSecurityToken.Mismatch")
    keys = {"accessKeyId": "sts", "accessKey": "secret"}
    for version in VERSIONS:
        put(log_client(local, version, securityToken="token", **keys), {"a": "1"})
        client = log_client(local, version, **keys)
        assert code_of(put, client, {"a": "1"}) == (401, "Unauthorized")


def test_a_token_does_no_harm_where_a_key_has_none(local):
    assert get_space(openapi_client(local, security_token="any")).status_code == 200
    put(log_client(local, securityToken="any"), {"a": "1"})


def test_a_revoked_key_is_refused_at_once(local, client, code_of):
    get_space(client)
    local.set_access_key("next", "secret")
    local.revoke_access_key("local-ak")
    assert code_of(get_space, client) == (404, "InvalidAccessKeyId.NotFound")
    get_space(openapi_client(local, access_key_id="next", access_key_secret="secret"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "query", ["*", "", "a b&c=d/中%20+~!*'()", 'x: "ü" | select 1 as "n m" from log limit 1']
)
def test_odd_queries_are_signed_alike_on_both_sides(local, version, query):
    client = log_client(local, version)
    client._get_logs_v2_enabled = False  # this form puts the query into the URL
    try:
        client.get_log("local-project", "experiment_detail", 0, 9, query=query)
    except Exception as error:
        assert error.get_error_code() == "ParameterInvalid"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["标 题", "a+b", "a%20b"])
def test_odd_names_in_paths_are_signed_alike_on_both_sides(local, version, name):
    client = log_client(local, version)
    client.create_dashboard("local-project", {"dashboardName": name})
    if "%" not in name:
        assert client.get_dashboard("local-project", name).get_entity() == {"dashboardName": name}


@pytest.mark.parametrize("name", ["a b/c中", "~!*()'", "a+b", "%41"])
def test_odd_names_are_signed_alike_by_the_openapi_client(local, client, code_of, name):
    request = m.GetExperimentPlanRequest()
    assert code_of(client.get_experiment_plan, SPACE, name, request) == (
        404,
        "ExperimentPlanNotExist",
    )
    request = m.ListExperimentPlansRequest(plan_name=name)
    assert client.list_experiment_plans(SPACE, request).body.total == 0


# --- requests that no official client would send


def refusal(headers, body=b"", protocol="openapi", now=time.time):
    verifier = Verifier(now)
    verifier.keys["ak"] = AccessKey("ak", "sk")
    request = Request("POST", "/x?a=1", headers, body)
    with pytest.raises(ServiceError) as caught:
        getattr(verifier, "check_" + protocol)(request)
    return caught.value.status, caught.value.code


ACS = "ACS3-HMAC-SHA256 Credential=ak,SignedHeaders=host,Signature=0"
SLS4 = "SLS4-HMAC-SHA256 Credential=ak/20260101/r/sls/aliyun_v4_request,Signature=0"


@pytest.mark.parametrize(
    "protocol, headers, expected",
    [
        ("openapi", {}, (400, "IncompleteSignature")),
        ("openapi", {"authorization": "Basic abc"}, (400, "IncompleteSignature")),
        (
            "openapi",
            {"authorization": "ACS3-HMAC-SHA256 Credential=ak"},
            (400, "IncompleteSignature"),
        ),
        ("openapi", {"authorization": ACS}, (400, "InvalidTimeStamp.Expired")),
        (
            "openapi",
            {"authorization": ACS, "x-acs-date": "2020-01-01T00:00:00Z"},
            (400, "InvalidTimeStamp.Expired"),
        ),
        ("sls", {}, (401, "Unauthorized")),
        ("sls", {"authorization": "LOG ak"}, (401, "Unauthorized")),
        ("sls", {"authorization": "LOG ak:0"}, (400, "RequestTimeExpired")),
        ("sls", {"authorization": "LOG ak:0", "date": "soon"}, (400, "RequestTimeExpired")),
        ("sls", {"authorization": SLS4}, (400, "RequestTimeExpired")),
        (
            "sls",
            {"authorization": "SLS4-HMAC-SHA256 Credential=ak/1/r,Signature=0"},
            (401, "SignatureNotMatch"),
        ),
    ],
)
def test_incomplete_or_outdated_signatures_are_refused(protocol, headers, expected):
    assert refusal(headers, protocol=protocol) == expected


def test_a_signature_that_is_no_ascii_is_a_wrong_one():
    headers = {"authorization": "LOG ak:\u00e9", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}
    refused = refusal(headers, protocol="sls", now=lambda: 1_767_225_600.0)
    assert refused == (401, "SignatureNotMatch")


def test_the_body_must_be_the_one_that_was_signed():
    def now():
        return 1_767_225_600.0  # 2026-01-01

    stamp = {"x-acs-date": "2026-01-01T00:00:00Z", "authorization": ACS}
    found = refusal(dict(stamp, **{"x-acs-content-sha256": "0"}), b"body", now=now)
    assert found == (400, "InvalidContentSha256")
    stamp = {"x-log-date": "20260101T000000Z", "authorization": SLS4, "x-log-content-sha256": "0"}
    assert refusal(stamp, b"body", "sls", now) == (400, "PostBodyInvalid")
    stamp = {"date": "Thu, 01 Jan 2026 00:00:00 GMT", "authorization": "LOG ak:0"}
    assert refusal(dict(stamp, **{"content-md5": "0"}), b"body", "sls", now) == (
        400,
        "PostBodyInvalid",
    )


def test_version_4_needs_a_body_hash_even_without_a_body(local):
    """The official signer and the server agree on one request signed by hand."""
    provider = type("P", (), {"get_credentials": lambda self: self})()
    provider.get_access_key_id = lambda: "ak"
    provider.get_access_key_secret = lambda: "sk"
    provider.get_security_token = lambda: None
    headers = {"Host": "p.127.0.0.1", "x-log-apiversion": "0.6.0", "X-Log-Meta-a": "unsigned"}
    auth.AuthV4(provider, "r").sign_request("GET", "/", {"b": "2", "a": ""}, headers, None)
    verifier = Verifier()
    verifier.keys["ak"] = AccessKey("ak", "sk")
    lowered = {name.lower(): value for name, value in headers.items()}
    verifier.check_sls(Request("GET", "/?b=2&a=", lowered))
