"""What the official client puts on the wire for each operation."""

import logging
import subprocess
import sys
import threading
import time

import pytest
from canned_server import CannedServer, answer

from agentloop_experiment_sdk.cloud.access import AccessKey
from agentloop_experiment_sdk.errors import CloudError, ConfigurationError


@pytest.fixture
def server():
    with CannedServer() as server:
        yield server


SPACE = "a b/c\u4e2d"
QUOTED = "a%20b%2Fc%E4%B8%AD"
CALLS = [
    (
        lambda api: api.get_plan(SPACE, "p!"),
        ("GetExperimentPlan", "GET", "/api/v1/experiments/{}/plans/p%21", {}, None),
    ),
    (
        lambda api: api.list_plans(SPACE, limit=5, offset=10, plan_name="n", status="running"),
        (
            "ListExperimentPlans",
            "GET",
            "/api/v1/experiments/{}/plans",
            {"limit": "5", "offset": "10", "planName": "n", "status": "running"},
            None,
        ),
    ),
    (
        lambda api: api.get_agent_space(SPACE),
        ("GetAgentSpace", "GET", "/agentspace/{}", {}, None),
    ),
    (
        lambda api: api.execute_query(SPACE, "ds", "select 1"),
        (
            "ExecuteQuery",
            "POST",
            "/agentspace/{}/dataset/ds/query",
            {},
            {"type": "SQL", "query": "select 1"},
        ),
    ),
    (
        lambda api: api.create_run(SPACE, {"experimentPlanId": "p", "totalTasks": 0}, "tok"),
        (
            "CreateExperimentRun",
            "POST",
            "/api/v1/experimentruns/{}/execute",
            {"clientToken": "tok"},
            {"experimentPlanId": "p", "totalTasks": 0},
        ),
    ),
    (
        lambda api: api.update_run(SPACE, "rec", {"status": "running"}, timeout=2.5),
        (
            "UpdateExperimentRun",
            "PUT",
            "/api/v1/experimentruns/{}/records/rec",
            {},
            {"status": "running"},
        ),
    ),
    (
        lambda api: api.get_run(SPACE, "rec"),
        ("GetExperimentRun", "GET", "/api/v1/experimentruns/{}/records/rec", {}, None),
    ),
    (
        lambda api: api.list_runs(SPACE, 2, 50, "plan"),
        (
            "ListExperimentRuns",
            "GET",
            "/api/v1/experimentruns/{}/records",
            {"page": "2", "pageSize": "50", "planName": "plan"},
            None,
        ),
    ),
    (
        lambda api: api.get_pipeline(SPACE, "pipe"),
        ("GetPipeline", "GET", "/agentspace/{}/pipeline/pipe", {}, None),
    ),
    (
        lambda api: api.preview_pipeline(SPACE, {"fromTime": 1, "toTime": 2}),
        (
            "PreviewPipeline",
            "POST",
            "/agentspace/{}/pipeline/preview",
            {},
            {"fromTime": 1, "toTime": 2},
        ),
    ),
]


@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[case[1][0] for case in CALLS])
def test_each_operation_goes_to_its_documented_place(server, call, expected):
    call(server.api())
    action, method, path, query, body = expected
    (seen,) = server.seen
    assert seen.headers["x-acs-action"] == action
    assert seen.headers["x-acs-version"] == "2026-05-20"
    assert seen.headers["authorization"].startswith("ACS3-HMAC-SHA256 Credential=ak-1,")
    assert "agentloop-experiment-sdk/" in seen.headers["user-agent"]
    assert (seen.method, seen.path, seen.query) == (method, path.format(QUOTED), query)
    assert (seen.json if seen.body else None) == body


def test_answers_keep_keys_that_no_client_model_knows(server):
    pipeline = {"requestId": "r", "source": {"type": "trace", "trajectory": {"new": [None, 1.5]}}}
    server.default = answer(200, pipeline)
    assert server.api().get_pipeline("s", "p") == pipeline


@pytest.mark.parametrize("name", ["", ".", "..", None, 3])
def test_a_segment_that_would_change_the_path_is_never_sent(server, name):
    with pytest.raises(ConfigurationError, match="cannot be part"):
        server.api().get_plan("space", name)
    assert server.seen == []


def test_query_answers_columns_and_rows_with_their_json_types(server):
    rows = [["1", 2, 3.5, True, None, {"a": [1]}]]
    server.default = answer(200, {"columns": list("abcdef"), "rows": rows})
    assert server.api().execute_query("s", "d", "select") == (list("abcdef"), rows)


def test_values_that_the_platform_cut_short_are_reported(server, caplog):
    body = {"columns": ["a"], "rows": [["x"]], "meta": {"truncation": {"truncated": True}}}
    server.default = answer(200, dict(body, requestId="r-7"))
    with caplog.at_level(logging.WARNING):
        server.api().execute_query("s", "faq", "select")
    assert "faq" in caplog.text and "r-7" in caplog.text


def test_an_incomplete_query_is_asked_again(server):
    done = {"columns": ["a"], "rows": [[1]], "meta": {"progress": "Complete"}}
    server.answers = [
        answer(200, {"columns": ["a"], "rows": [], "meta": {"progress": "Incomplete"}})
    ]
    server.default = answer(200, done)
    assert server.api().execute_query("s", "d", "q")[1] == [[1]]
    assert len(server.seen) == 2


@pytest.mark.parametrize("body", [{"columns": "x"}, {"columns": [], "rows": [{"a": 1}]}])
def test_a_query_answer_that_is_no_table_is_an_error(server, body):
    server.default = answer(200, dict(body, requestId="r-9"))
    with pytest.raises(CloudError) as caught:
        server.api().execute_query("s", "d", "q")
    assert (caught.value.code, caught.value.request_id) == ("InvalidAnswer", "r-9")


def test_a_token_travels_with_its_keys(server):
    server.api(AccessKey("sts-id", "sts-secret", "sts-token")).get_plan("s", "p")
    assert server.seen[0].headers["x-acs-security-token"] == "sts-token"
    assert "Credential=sts-id," in server.seen[0].headers["authorization"]


def test_both_keys_and_provider_reach_the_official_client(server):
    from alibabacloud_tea_openapi import utils_models

    given = []
    original = utils_models.Config.__init__

    def noting(self, **options):
        given.append(options)
        original(self, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils_models.Config, "__init__", noting)
        server.api(AccessKey("id-1", "secret-1", "token-1")).get_plan("s", "p")
    (options,) = given
    assert options["access_key_id"] == "id-1" and options["security_token"] == "token-1"
    shared = options["credential"].get_credential()
    assert shared.get_access_key_secret() == "secret-1"


class RotatingKeys:
    """New keys with each question, as a provider of temporary keys gives them."""

    def __init__(self):
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        return AccessKey("id-{}".format(self.asked), "secret", "token-{}".format(self.asked))

    def get_provider_name(self):
        return "rotating"


def test_rotated_keys_sign_the_next_call(server):
    api = server.api(RotatingKeys())
    api.get_plan("s", "p")
    api.get_plan("s", "p")
    assert [seen.headers["x-acs-security-token"] for seen in server.seen] == ["token-1", "token-2"]


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
def test_a_proxy_in_the_environment_does_not_catch_loopback_calls(server, variable, monkeypatch):
    with CannedServer() as proxy:
        monkeypatch.setenv(variable, proxy.url)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert server.api().get_plan("s", "p") == {"requestId": "r-1"}
        # a thread that another test left behind may ask the proxy for something else
        assert [seen for seen in proxy.seen if server.url in seen.target] == []
    assert len(server.seen) == 1


def test_many_threads_share_one_api(server):
    server.respond = lambda seen: answer(200, {"planId": seen.path.rsplit("/", 1)[1]})
    api, wrong = server.api(), []

    def work(number):
        for turn in range(10):
            plan = "plan-{}-{}".format(number, turn)
            if api.get_plan("s", plan)["planId"] != plan:
                wrong.append(plan)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and len(server.seen) == 80


def test_the_official_client_is_imported_with_the_first_call_only():
    code = (
        "import sys\n"
        "from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess\n"
        "from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi\n"
        "AgentLoopApi(CloudAccess('cn-test', None, None, AccessKey('a', 'b')))\n"
        "heavy = [m for m in sys.modules if m.startswith(('alibabacloud', 'darabonba', 'Tea', "
        "'aliyun', 'requests', 'aiohttp', 'asyncio', 'ssl'))]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_reads_wait_with_the_sleep_that_was_given_and_writes_do_not_repeat(server):
    server.default = answer(503, {"Code": "ServiceUnavailable", "Message": "later"})
    api = server.api()
    started = time.monotonic()
    with pytest.raises(CloudError):
        api.get_run("s", "r")
    assert server.pauses == [0.3, 1.0] and len(server.seen) == 3
    for write in (
        lambda: api.create_run("s", {}),
        lambda: api.update_run("s", "r", {}),
        lambda: api.preview_pipeline("s", {}),
    ):
        before = len(server.seen)
        with pytest.raises(CloudError):
            write()
        assert len(server.seen) == before + 1
    assert time.monotonic() - started < 60
