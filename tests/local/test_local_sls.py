"""Each SLS operation, asked by the unmodified official client, in both signature versions."""

from __future__ import annotations

import http.client
import json
import time
import zlib

import pytest
from aliyun.log import GetHistogramsRequest, GetLogsRequest, IndexConfig, LogException
from aliyun.log.log_logs_raw_pb2 import LogGroupRaw
from official_clients import log_client, put

PROJECT = "local-project"
STORE = "experiment_detail"
END = 4_000_000_000
CONTENTS = {"task_id": "t", "输出": "你好\n", "empty": "", "long": "x" * 70000}


@pytest.fixture(params=["v1", "v4"])
def logs(local, request):
    return log_client(local, request.param)


def found(client, query="*", store=STORE, **options):
    answer = client.get_log(PROJECT, store, 0, END, query=query, **options)
    assert answer.is_completed()
    return [log.get_contents() for log in answer.get_logs()]


# --- PutLogs


@pytest.mark.parametrize("compress", [True, False])
def test_rows_arrive_as_they_were_sent(local, logs, compress):
    before = int(time.time())
    put(logs, CONTENTS, compress=compress)
    (row,) = local.rows()
    assert before <= int(row["__time__"]) <= time.time()
    common = {"__topic__": "topic", "__source__": "source", "__time__": row["__time__"]}
    assert row == dict(CONTENTS, **common)


def test_tags_are_kept(local, logs):
    put(logs, {"a": "1"}, logtags=[("host", "h")])
    assert local.rows()[0]["__tag__:host"] == "h"


def test_a_hash_key_may_choose_the_shard(local, logs):
    put(logs, {"a": "1"}, hashKey="0" * 32)
    assert len(local.rows()) == 1


def test_a_group_without_logs_stores_nothing(local, logs):
    put(logs)
    assert local.rows() == []


def test_rows_of_one_record_are_found_in_arrival_order(local, logs):
    for at in range(3):
        put(logs, *({"experiment_id": record, "n": str(at)} for record in ("r", "s")))
    assert [row["n"] for row in local.rows("r")] == ["0", "1", "2"]
    assert len(local.rows()) == 6
    assert local.rows("r", logstore="evaluation_detail") == []


def test_raw_groups_may_hold_bytes_that_are_no_text(local, logs):
    group = LogGroupRaw()
    log = group.Logs.add()
    log.Time = 7
    content = log.Contents.add()
    content.Key, content.Value = "k", b"a\xffb"
    logs.put_log_raw(PROJECT, STORE, group)
    assert local.rows() == [{"k": "a\ufffdb", "__time__": "7", "__source__": "", "__topic__": ""}]


def test_an_unknown_logstore_or_project_is_404(local, logs, code_of):
    assert code_of(put, logs, {"a": "1"}, logstore="none") == (404, "LogStoreNotExist")
    assert code_of(put, logs, {"a": "1"}, project="none") == (404, "ProjectNotExist")
    assert code_of(logs.get_project, None) == (404, "ProjectNotExist")


def send(client, body, **headers):
    """A PutLogs whose body and headers the client would not send by itself."""
    sent = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(body))}
    sent.update({name.replace("_", "-"): text for name, text in headers.items()})
    sent = {name: text for name, text in sent.items() if text is not None}
    return client._send("POST", PROJECT, body, "/logstores/" + STORE + "/shards/lb", {}, sent)


def group_bytes(*contents, when=5):
    group = LogGroupRaw()
    for pairs in contents:
        log = group.Logs.add()
        log.Time = when
        for key, value in pairs.items():
            content = log.Contents.add()
            content.Key, content.Value = key, value
    return group.SerializeToString()


def test_deflate_is_understood(local, logs):
    raw = group_bytes({"k": b"v" * 500})
    send(logs, zlib.compress(raw), x_log_compresstype="deflate", x_log_bodyrawsize=str(len(raw)))
    assert local.rows()[0]["k"] == "v" * 500


BROKEN = {
    "no protobuf": (b"\xff\xff", {}),
    "cut": (group_bytes({"k": b"value"})[:-3], {}),
    "no contents": (group_bytes({}), {}),
    "no time": (b"\x0a\x07\x12\x05\x0a\x01k\x12\x00", {}),
    "wrong size": (group_bytes({"k": b"v"}), {"x_log_bodyrawsize": "3"}),
    "not lz4": (b"\xff\xff\xff", {"x_log_compresstype": "lz4"}),
    "not zlib": (b"abc", {"x_log_compresstype": "deflate"}),
}


@pytest.mark.parametrize("case", sorted(BROKEN))
def test_a_broken_body_stores_nothing(local, logs, code_of, case):
    body, headers = BROKEN[case]
    assert code_of(send, logs, body, **headers) == (400, "PostBodyInvalid")
    assert local.rows() == []


def test_one_bad_log_fails_the_whole_group(local, logs, code_of):
    assert code_of(send, logs, group_bytes({"k": b"v"}, {})) == (400, "PostBodyInvalid")
    assert local.rows() == []


@pytest.mark.parametrize(
    "headers, code",
    [
        ({"x_log_bodyrawsize": "many"}, "InvalidBodyRawSize"),
        ({"x_log_bodyrawsize": None}, "MissingBodyRawSize"),
        ({"x_log_bodyrawsize": str(10 * 1024 * 1024 + 1)}, "PostBodyTooLarge"),
        ({"x_log_compresstype": "zstd"}, "InvalidCompressType"),
    ],
)
def test_wrong_headers_of_a_body_are_named(local, logs, code_of, headers, code):
    assert code_of(send, logs, group_bytes({"k": b"v"}), **headers) == (400, code)


def test_ten_megabytes_are_the_limit(local, logs, code_of):
    put(logs, {"k": "v" * (10 * 1024 * 1024 - 100)})
    assert len(local.rows()[0]["k"]) == 10 * 1024 * 1024 - 100
    assert code_of(put, logs, {"k": "v" * (10 * 1024 * 1024)}) == (400, "PostBodyTooLarge")


# --- GetLogs, GetHistograms


def test_logs_are_read_back_by_time_in_either_direction(local, logs):
    for when in (30, 10, 20, 10):
        local.put_logs(STORE, [{"__time__": when, "at": when}])
    rows = [row["at"] for row in found(logs)]
    assert rows == ["10", "10", "20", "30"]
    assert [row["at"] for row in found(logs, reverse=True, size=2)] == ["30", "20"]
    assert [row["at"] for row in found(logs, offset=1, size=2)] == ["10", "20"]
    answer = logs.get_logs(GetLogsRequest(PROJECT, STORE, 10, 20))
    assert answer.get_count() == 2


def test_more_than_a_page_is_read_page_by_page(local, logs):
    local.put_logs(STORE, [{"n": at} for at in range(250)])
    assert [row["n"] for row in found(logs, size=-1)] == [str(at) for at in range(250)]


def test_a_topic_narrows_a_query(local, logs):
    put(logs, {"a": "1"})
    assert len(found(logs, "a: 1", topic="topic")) == 1
    assert found(logs, "a: 1", topic="other") == []
    assert found(logs, "* | select count(*) as n", topic="topic")[0]["n"] == "1"


def test_analysis_is_done_by_sqlite(local, logs):
    local.put_logs(
        STORE, [{"status": "success", "ms": at, "repeat_id": at % 2} for at in range(250)]
    )
    rows = found(logs, "* | SELECT status, count(*) AS n, max(repeat_id) AS r GROUP BY status")
    assert rows == [{"status": "success", "n": "250", "r": "1"}]
    assert len(found(logs, "* | SELECT ms FROM log")) == 100
    assert len(found(logs, "* | SELECT ms FROM log LIMIT 250")) == 250
    assert found(logs, "ms: 249 | SELECT ms, absent FROM (SELECT *, NULL AS absent FROM log)") == [
        {"ms": "249", "absent": "null"}
    ]
    late = found(logs, "* | SELECT count(*) AS n WHERE repeat_id = 1 AND __time__ > 5")
    assert late == [{"n": "125"}]


def test_a_long_keeps_all_its_digits_and_is_null_beyond_64_bits(local, logs):
    nanoseconds = "1767225600123456789"
    local.put_logs(STORE, [{"repeat_id": text} for text in (nanoseconds, "9" * 25, "7.5")])
    rows = found(logs, "* | SELECT repeat_id FROM log")
    assert [row["repeat_id"] for row in rows] == [nanoseconds, "null", "7"]


def test_logs_without_the_index_type_are_text(local, logs):
    local.put_logs(STORE, [{"repeat_id": "none"}, {"repeat_id": "inf"}, {"other": "5"}])
    assert found(logs, "* | SELECT repeat_id, other FROM log ORDER BY other DESC LIMIT 1") == [
        {"repeat_id": "null", "other": "5"}
    ]


@pytest.mark.parametrize(
    "query", ["* | DELETE FROM log", "a: (", 'a: "', "* | select x y z", "and"]
)
def test_a_bad_query_is_refused(local, logs, code_of, query):
    assert code_of(found, logs, query) == (400, "ParameterInvalid")


def test_a_time_range_must_not_be_empty(local, logs, code_of):
    assert code_of(logs.get_log, PROJECT, STORE, 5, 5) == (400, "ParameterInvalid")
    assert code_of(found, logs, store="none") == (404, "LogStoreNotExist")


def test_the_form_of_older_clients_works(local, logs):
    logs._get_logs_v2_enabled = False
    put(logs, {"a": "1"}, {"a": "2"})
    assert [row["a"] for row in found(logs)] == ["1", "2"]
    assert [row["a"] for row in found(logs, reverse=True)] == ["2", "1"]
    assert found(logs, "* | select count(*) as n") == [{"n": "2"}]


def test_histograms_count_every_row_once(local, logs):
    local.put_logs(STORE, [{"__time__": when} for when in (100, 100, 161, 199)])
    answer = logs.get_histograms(GetHistogramsRequest(PROJECT, STORE, 100, 200))
    assert answer.is_completed()
    assert answer.get_total_count() == 4
    assert sum(bar.get_count() for bar in answer.get_histograms()) == 4
    assert answer.get_histograms()[0].get_from() == 100
    assert answer.get_histograms()[-1].get_to() == 200


# --- resources


def test_the_project_is_described(local, logs):
    project = logs.get_project(PROJECT)
    assert (project.get_projectname(), project.get_status()) == (PROJECT, "Normal")
    assert project.get_region() == "cn-local"


def test_logstores_are_created_read_listed_and_deleted(local, logs, code_of):
    logs.create_logstore(PROJECT, "more", ttl=7, shard_count=1)
    assert code_of(logs.create_logstore, PROJECT, "more") == (400, "LogStoreAlreadyExist")
    assert code_of(logs.create_logstore, PROJECT, "a/b") == (400, "ParameterInvalid")
    found_store = logs.get_logstore(PROJECT, "more")
    assert (found_store.logstore_name, found_store.ttl, found_store.shard_count) == ("more", 7, 1)
    names = logs.list_logstore(PROJECT).get_logstores()
    assert names == [STORE, "evaluation_detail", "logstore-tracing", "more"]
    assert logs.list_logstore(PROJECT, "more").get_logstores_total() == 1
    assert logs.list_logstore(PROJECT, offset=1, size=2).get_logstores() == names[1:3]
    put(logs, {"a": "1"}, logstore="more")
    logs.delete_logstore(PROJECT, "more")
    assert local.rows(logstore="more") == []
    assert code_of(logs.get_logstore, PROJECT, "more") == (404, "LogStoreNotExist")


def test_an_index_is_created_once_then_updated(local, logs, code_of):
    logs.create_logstore(PROJECT, "more")
    assert code_of(logs.get_index_config, PROJECT, "more") == (404, "IndexConfigNotExist")
    config = IndexConfig()
    config.set_docvalue_max_text_len(16384)
    missing = (404, "IndexConfigNotExist")
    assert code_of(logs.update_index, PROJECT, "more", config) == missing
    logs.create_index(PROJECT, "more", config)
    assert code_of(logs.create_index, PROJECT, "more", config) == (400, "IndexAlreadyExist")
    logs.update_index(PROJECT, "more", config)
    assert logs.get_index_config(PROJECT, "more").get_index_config().docvalue_max_text_len == 16384


def test_the_logstores_of_agentloop_have_an_index(local, logs):
    for store in (STORE, "evaluation_detail", "logstore-tracing"):
        assert logs.get_index_config(PROJECT, store).get_index_config().key_config_list


def test_dashboards_are_created_read_listed_updated_and_deleted(local, logs, code_of):
    board = {"dashboardName": "b", "displayName": "B", "charts": []}
    gone = (404, "DashboardNotExist")
    assert code_of(logs.get_dashboard, PROJECT, "b") == gone
    logs.create_dashboard(PROJECT, board)
    assert code_of(logs.create_dashboard, PROJECT, board) == (400, "DashboardAlreadyExist")
    assert code_of(logs.create_dashboard, PROJECT, {"a": 1}) == (400, "ParameterInvalid")
    assert code_of(logs.create_dashboard, PROJECT, "[]") == (400, "PostBodyInvalid")
    assert code_of(logs.create_dashboard, PROJECT, "{") == (400, "PostBodyInvalid")
    assert logs.get_dashboard(PROJECT, "b").get_entity() == board
    logs.update_dashboard(PROJECT, dict(board, displayName="C"))
    assert logs.get_dashboard(PROJECT, "b").get_entity()["displayName"] == "C"
    assert logs.list_dashboard(PROJECT).get_entities() == ["b"]
    logs.delete_dashboard(PROJECT, "b")
    assert code_of(logs.delete_dashboard, PROJECT, "b") == gone


def test_paging_needs_numbers(local, logs, code_of):
    def ask():
        return logs._send("GET", PROJECT, None, "/logstores", {"offset": "x"}, {})

    assert code_of(ask) == (400, "ParameterInvalid")


def test_what_is_not_offered_says_so(local, logs, code_of):
    assert code_of(logs.delete_project, PROJECT) == (404, "NotSupported")
    assert local.requests["Unknown"] == 1


def test_reading_needs_a_json_object(local, logs, code_of):
    def ask(body):
        headers = {"Content-Type": "application/json"}
        return logs._send("POST", PROJECT, body, "/logstores/" + STORE + "/logs", {}, headers)

    assert code_of(ask, b"[]") == (400, "PostBodyInvalid")
    assert code_of(ask, b"{") == (400, "PostBodyInvalid")
    assert code_of(ask, b'{"from":0,"to":9,"line":-1}') == (400, "ParameterInvalid")
    assert code_of(ask, b'{"from":0,"to":"soon"}') == (400, "ParameterInvalid")
    assert code_of(ask, b'{"from":0}') == (400, "ParameterInvalid")


def test_another_api_version_is_refused(local, logs, code_of, monkeypatch):
    monkeypatch.setattr("aliyun.log.logclient.API_VERSION", "0.5.0")
    assert code_of(logs.get_project, PROJECT) == (400, "InvalidAPIVersion")


def test_an_unsigned_request_is_refused(local):
    connection = http.client.HTTPConnection(local.endpoints.sls_endpoint.split("://")[1])
    connection.request("GET", "/", headers={"x-log-apiversion": "0.6.0", "Host": "127.0.0.1"})
    answer = connection.getresponse()
    assert answer.status == 401
    assert json.loads(answer.read())["errorCode"] == "Unauthorized"
    assert answer.headers["x-log-requestid"]
    connection.close()


def test_an_error_is_a_log_exception_with_its_request_id(local, logs):
    with pytest.raises(LogException) as caught:
        put(logs, {"a": "1"}, logstore="none")
    assert caught.value.get_request_id()
    assert caught.value.get_error_message() == "logstore none does not exist"
