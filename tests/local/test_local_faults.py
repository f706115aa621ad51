"""Each fault does what it says, to the requests it names and to no others."""

from __future__ import annotations

import threading
import time

import pytest
from alibabacloud_agentloop20260520 import models as m
from official_clients import log_client, new_run, openapi_client, preview, put

from agentloop_experiment_sdk.errors import ConfigurationError

SPACE = "local"
STORE = "experiment_detail"


def get_space(client):
    return client.get_agent_space(SPACE, m.GetAgentSpaceRequest()).body


def outcomes(call, count):
    """The error code of each of ``count`` calls, "" for success."""
    found = []
    for _ in range(count):
        try:
            call()
            found.append("")
        except Exception as error:
            name = getattr(error, "code", None) or getattr(error, "_errorCode", None)
            found.append(name or type(error).__name__)
    return found


def put_once(logs, **row):
    return lambda: put(logs, row or {"a": "1"})


def write_quota(local, **selection):
    # a 4xx: the official client sends those once, 5xx ten times
    return local.faults.fail("PutLogs", 403, "WriteQuotaExceed", **selection)


# --- which requests are hit


def test_the_next_n_requests_fail(local, client):
    fault = local.faults.fail("GetAgentSpace", 503, "Busy", times=2)
    assert outcomes(lambda: get_space(client), 4) == ["Busy", "Busy", "", ""]
    assert (fault.hits, fault.active) == (2, False)


def test_every_third_request_fails(local, logs):
    write_quota(local, every=3)
    failed = "WriteQuotaExceed"
    assert outcomes(put_once(logs), 6) == ["", "", failed, "", "", failed]
    assert len(local.rows()) == 4


def test_requests_fail_after_the_first_few_until_the_fault_is_stopped(local, logs):
    with write_quota(local, after=1) as fault:
        assert outcomes(put_once(logs), 3) == ["", "WriteQuotaExceed", "WriteQuotaExceed"]
    assert outcomes(put_once(logs), 1) == [""]
    assert fault.hits == 2


def test_a_condition_sees_the_decoded_rows(local, logs):
    write_quota(local, when=lambda request: any(row["a"] == "poison" for row in request.rows))
    calls = [put_once(logs, a=text) for text in ("x", "poison", "y")]
    assert [outcomes(call, 1)[0] for call in calls] == ["", "WriteQuotaExceed", ""]
    assert [row["a"] for row in local.rows()] == ["x", "y"]


def test_a_condition_may_look_for_a_text(local, logs, client):
    write_quota(local, containing="poison")
    local.faults.fail("*", 400, "Named", containing="agentspace/lo")
    assert outcomes(put_once(logs, a="some poison in it"), 1) == ["WriteQuotaExceed"]
    assert outcomes(put_once(logs, a="x"), 1) == [""]
    assert outcomes(lambda: get_space(client), 1) == ["Named"]
    local.faults.clear()
    local.faults.fail("openapi:*", 400, "InBody", containing="needle")
    update = m.UpdateExperimentRunRequest(record_name="needle")
    assert outcomes(lambda: client.update_experiment_run(SPACE, "r", update), 1) == ["InBody"]


def test_a_broken_body_is_still_refused_while_conditions_look_inside(local, logs, code_of):
    write_quota(local, containing="poison")
    headers = {"x-log-bodyrawsize": "2"}
    path = "/logstores/" + STORE + "/shards/lb"
    found = code_of(logs._send, "POST", "local-project", b"\xff\xff", path, {}, headers)
    assert found == (400, "PostBodyInvalid")


def test_faults_may_name_one_service_or_several_actions(local, logs, client):
    local.faults.fail("openapi:*", 400, "Open", times=1)
    local.faults.fail(["PutLogs", "GetProject"], 400, "Several", times=2)
    assert outcomes(put_once(logs), 1) == ["Several"]
    assert outcomes(lambda: get_space(client), 2) == ["Open", ""]
    assert outcomes(lambda: logs.get_project("local-project"), 2) == ["Several", ""]


def test_the_first_fault_that_strikes_decides(local, client):
    first = local.faults.fail("*", 400, "First", times=1)
    second = local.faults.fail("*", 400, "Second", times=1)
    assert outcomes(lambda: get_space(client), 3) == ["First", "Second", ""]
    assert (first.hits, second.hits) == (1, 1)


def test_a_retry_time_is_sent_in_both_headers(local, client):
    local.faults.fail("*", 429, "Throttling.User", retry_after=1.5, message="slow down")
    with pytest.raises(Exception) as caught:
        get_space(client)
    assert caught.value.retry_after == 1500
    assert "slow down" in caught.value.message


@pytest.mark.parametrize(
    "selection",
    [
        {"times": 0},
        {"times": 1.5},
        {"every": 0},
        {"every": None},
        {"after": -1},
        {"after": "x"},
        {"when": "x"},
        {"containing": None},
    ],
    ids=str,
)
def test_a_selection_that_makes_no_sense_is_refused(local, selection):
    (name,) = selection
    for inject in (local.faults.fail, lambda *a, **o: local.faults.drop(*a, stored=True, **o)):
        with pytest.raises(ConfigurationError, match=name + " must be"):
            inject("*", **selection)


@pytest.mark.parametrize("action", [None, 5, "", [], [None], ["PutLogs", ""], {"PutLogs": 1}])
def test_a_fault_that_no_request_can_meet_is_refused(local, action):
    with pytest.raises(ConfigurationError, match="action must be"):
        local.faults.fail(action)


@pytest.mark.parametrize(
    "options",
    [
        {"status": 0},
        {"status": "500"},
        {"status": 1000},
        {"code": ""},
        {"code": None},
        {"message": None},
        {"retry_after": "5"},
        {"retry_after": -1},
    ],
    ids=str,
)
def test_an_error_that_cannot_be_answered_is_refused(local, options):
    (name,) = options
    with pytest.raises(ConfigurationError, match=name + " must be"):
        local.faults.fail("*", **options)
    if name in ("status", "code"):
        with pytest.raises(ConfigurationError, match=name + " must be"):
            local.faults.refuse_reopen(**options)


# --- latency


def test_the_latency_of_a_named_action_replaces_the_general_one(local, logs):
    local.faults.latency(0.3)
    local.faults.latency(0.0, "PutLogs")
    slow = local.faults.latency(0.6, "GetProject", times=1)

    def took(call):
        begin = time.monotonic()
        call()
        return time.monotonic() - begin

    assert took(lambda: logs.get_project("local-project")) >= 0.6
    assert not slow.active
    assert took(lambda: logs.get_project("local-project")) >= 0.3


def test_late_requests_are_carried_out_at_once_and_side_by_side(local):
    local.faults.latency(600.0, "PutLogs")
    calls = [put_once(log_client(local)) for _ in range(8)]
    threads = [threading.Thread(target=outcomes, args=(call, 1)) for call in calls]
    for thread in threads:
        thread.start()
    assert local.wait_for("PutLogs", 8)
    assert len(local.rows()) == 8  # stored, although no answer is near
    local.close()
    for thread in threads:
        thread.join()


def test_a_latency_is_not_negative(local):
    for seconds in (-1, "1", None, float("nan"), True):
        with pytest.raises(ConfigurationError, match="seconds must be a number of seconds"):
            local.faults.latency(seconds)
    with pytest.raises(ValueError, match="0 or more"):
        local.faults.latency(-1)


# --- dropped connections


def test_a_connection_is_dropped_before_the_rows_are_stored(local, logs):
    local.faults.drop("PutLogs", stored=False, times=1)
    assert outcomes(put_once(logs), 2) == ["LogRequestError", ""]
    assert len(local.rows()) == 1
    assert local.requests["PutLogs"] == 2


def test_a_connection_is_dropped_after_the_rows_are_stored(local, logs):
    local.faults.drop("PutLogs", stored=True, times=1)
    assert outcomes(put_once(logs), 2) == ["LogRequestError", ""]
    assert len(local.rows()) == 2


def test_a_created_run_survives_the_loss_of_its_answer(local):
    local.faults.drop("CreateExperimentRun", stored=True)
    assert outcomes(lambda: new_run(local), 1) == ["UnretryableException"]
    assert len(local.records()) == 1


# --- outages


@pytest.mark.parametrize(
    "mode, status, code",
    [("403", 403, "WriteQuotaExceed"), ("429", 429, "ExceedQuota")],
)
def test_an_outage_begins_after_n_requests_and_ends_with_stop(
    local, logs, client, code_of, mode, status, code
):
    outage = local.faults.outage(mode, "PutLogs", after=2)
    assert outcomes(put_once(logs), 2) == ["", ""]
    assert code_of(put_once(logs)) == (status, code)
    assert get_space(client)
    assert logs.get_project("local-project")
    outage.stop()
    assert outcomes(put_once(logs), 1) == [""]
    assert outage.hits == 1


@pytest.mark.parametrize(
    "mode, status, code", [("500", 500, "InternalServerError"), ("503", 503, "ServerBusy")]
)
def test_an_outage_of_the_server_answers_5xx(local, monkeypatch, mode, status, code):
    monkeypatch.setattr("aliyun.log.logclient.time.sleep", lambda seconds: None)
    outage = local.faults.outage(mode, times=10)
    with pytest.raises(Exception) as caught:
        put(log_client(local), {"a": "1"})
    assert (caught.value.get_resp_status(), caught.value.get_error_code()) == (status, code)
    assert outage.hits == 10  # the official client's own tries
    assert local.rows() == []


def test_an_outage_may_refuse_connections(local, logs):
    with local.faults.outage("refuse"):
        assert outcomes(put_once(logs), 2) == ["LogRequestError"] * 2
    assert outcomes(put_once(logs), 1) == [""]


def test_an_outage_may_hang(local, client, monkeypatch):
    monkeypatch.setattr("aliyun.log.logclient.time.sleep", lambda seconds: None)
    outage = local.faults.outage("hang", when=lambda request: request.action == "PutLogs")
    logs = log_client(local)
    logs.timeout = 0.05
    assert outcomes(put_once(logs), 1) == ["LogRequestError"]
    assert outage.hits == 10
    assert get_space(client)  # nobody else waits
    outage.stop()
    assert local.rows() == []
    logs.timeout = 20
    assert outcomes(put_once(logs), 1) == [""]


def test_an_outage_has_a_known_mode(local):
    with pytest.raises(ValueError, match="500, 503, 403, 429, refuse, hang"):
        local.faults.outage("gone")


# --- previews


def test_previews_are_empty_for_n_calls_of_each_trace(local, client):
    local.faults.empty_previews(calls=2)
    local.put_logs("logstore-tracing", [{"traceId": at * 32} for at in "ab"])
    found = [len(preview(client, at * 32).data) for at in "aabaab"]
    assert found == [0, 0, 0, 1, 1, 0]
    assert len(preview(client, "b" * 32).data) == 1


def test_previews_are_empty_for_n_seconds(local, client):
    clock = [100.0]
    local.faults.clock = lambda: clock[0]
    local.faults.empty_previews(seconds=20, per_trace=False)
    local.put_logs("logstore-tracing", [{"traceId": "a" * 32}])
    assert preview(client, "a" * 32).data == []
    clock[0] += 19.9
    assert preview(client, None).data == []
    clock[0] += 0.1
    assert len(preview(client, "a" * 32).data) == 1
    local.faults.clear()
    assert len(preview(client, "a" * 32).data) == 1


def test_either_seconds_or_calls(local):
    for given in ({}, {"seconds": 1, "calls": 1}):
        with pytest.raises(ConfigurationError, match="either"):
            local.faults.empty_previews(**given)
    for name, value in (("seconds", "5"), ("seconds", -1), ("calls", 1.5), ("calls", "5")):
        with pytest.raises(ConfigurationError, match=name + " must be"):
            local.faults.empty_previews(**{name: value})


def test_previews_may_be_slow(local, client):
    local.faults.slow_previews(0.3)
    begin = time.monotonic()
    preview(client, "a" * 32)
    assert time.monotonic() - begin >= 0.3


# --- records


def reopen(client, record_id):
    request = m.UpdateExperimentRunRequest(status="running", total_tasks=9)
    return client.update_experiment_run(SPACE, record_id, request).body.status


@pytest.mark.parametrize("ended", ["completed", "failed"])
def test_reopening_is_refused_with_an_error(local, client, code_of, ended):
    local.faults.refuse_reopen(status=403, code="RecordClosed")
    record_id = new_run(local, status=ended)
    assert code_of(reopen, client, record_id) == (403, "RecordClosed")
    assert local.record(record_id)["status"] == ended
    assert local.record(record_id)["totalTasks"] == 0
    again = m.UpdateExperimentRunRequest(status=ended, completed_tasks=3)
    assert client.update_experiment_run(SPACE, record_id, again).body.status == ended
    assert local.record(record_id)["completedTasks"] == 3


def test_reopening_is_refused_by_answering_another_status(local, client):
    record_id = new_run(local, status="completed")
    local.faults.refuse_reopen(answer="persisted")
    assert reopen(client, record_id) == "completed"
    local.faults.refuse_reopen(answer="evaluating")
    assert reopen(client, record_id) == "evaluating"
    assert local.record(record_id)["totalTasks"] == 0
    assert len(local.updates(record_id)) == 2
    local.faults.clear()
    assert reopen(client, record_id) == "running"


def test_client_tokens_may_be_ignored(local):
    local.faults.ignore_client_tokens()
    client = openapi_client(local)
    plan = local.create_plan()
    request = m.CreateExperimentRunRequest(
        experiment_plan_id=plan,
        client_token="t",
        offline_experiments=[m.OfflineExperimentConfig(name="A")],
    )
    for _ in range(2):
        client.create_experiment_run(SPACE, request)
    assert len(local.records()) == 2
    local.faults.ignore_client_tokens(False)
    client.create_experiment_run(SPACE, request)
    assert len(local.records()) == 2


def test_a_fault_taken_back_from_another_thread_is_gone(local, logs):
    fault = write_quota(local)
    stopper = threading.Thread(target=fault.stop)
    stopper.start()
    stopper.join()
    assert outcomes(put_once(logs), 1) == [""]
