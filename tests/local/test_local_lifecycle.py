"""Starting, stopping, restarting, crashing, and a process of its own."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from alibabacloud_agentloop20260520 import models as m
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from official_clients import log_client, new_run, openapi_client, put

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.local import Endpoints, LocalAgentLoop, Request, ServiceError
from agentloop_experiment_sdk.local.__main__ import main
from agentloop_experiment_sdk.local.server import LoopServer

SPACE = "local"


def ids(local, sql="SELECT id FROM dataset", name="dataset"):
    request = m.ExecuteQueryRequest(type="SQL", query=sql)
    found = openapi_client(local).execute_query(SPACE, name, request).body.rows
    return [row[0] for row in found]


# --- the with block


def test_the_endpoints_say_all_that_a_client_needs(local):
    url = local.endpoints.agentloop_endpoint
    assert url.startswith("http://127.0.0.1:")
    assert local.endpoints == Endpoints(
        url, url, "local", "cn-local", "local-project", "local-ak", "local-sk"
    )


def test_names_and_keys_may_be_chosen():
    with LocalAgentLoop(
        agent_space="a", project="p", region_id="r", access_key_id="k", access_key_secret="s"
    ) as local:
        space = openapi_client(local).get_agent_space("a", m.GetAgentSpaceRequest()).body
        assert (space.sls_project, space.region_id) == ("p", "r")
        put(log_client(local), {"x": "1"}, project="p")
        assert len(local.rows()) == 1


def test_nothing_happens_before_it_is_started():
    local = LocalAgentLoop("/nowhere/at/all", port=1)
    for use in (
        lambda: local.endpoints,
        lambda: local.requests,
        lambda: local.rows(),
        lambda: local.wait_for("PutLogs"),
        lambda: local.load_dataset([]),
    ):
        with pytest.raises(RuntimeError, match="not running"):
            use()
    local.check()
    local.close()


def test_it_may_be_closed_twice_and_started_again():
    local = LocalAgentLoop()
    with local:
        with pytest.raises(RuntimeError, match="running already"):
            local.start()
        local.close()
        local.close()
    with local:
        assert local.rows() == []
    with pytest.raises(RuntimeError, match="not running"):
        local.rows()


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_behind():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        local = LocalAgentLoop(port=taken.getsockname()[1])
        with pytest.raises(OSError):
            local.start()
    with local:
        assert local.endpoints.sls_endpoint.endswith(str(local._asked_port))


def test_closing_ends_the_thread_and_the_connections():
    before = set(threading.enumerate())
    local = LocalAgentLoop().start()
    port = int(local.endpoints.sls_endpoint.rpartition(":")[2])
    idle = socket.create_connection(("127.0.0.1", port))
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    ids_before = local.requests
    local.close()
    assert not thread.is_alive()
    with idle:
        try:
            assert idle.recv(1) == b""
        except ConnectionResetError:
            pass  # it was not accepted yet
    assert ids_before == {}


def test_two_run_side_by_side():
    with LocalAgentLoop() as one, LocalAgentLoop() as two:
        put(log_client(one), {"a": "1"})
        assert (len(one.rows()), len(two.rows())) == (1, 0)


# --- crashes


def crash(local):
    """Have a handler of it raise ZeroDivisionError; the client sees a 500."""
    local.faults.fail("GetAgentSpace", when=lambda request: 1 // 0)
    client = openapi_client(local)
    with pytest.raises(AlibabaCloudException) as answered:
        client.get_agent_space(SPACE, m.GetAgentSpaceRequest())
    assert answered.value.status_code == 500


def test_a_crash_of_a_handler_fails_the_block_that_caused_it():
    with pytest.raises(
        RuntimeError, match="ZeroDivisionError"
    ) as caught, LocalAgentLoop() as local:
        crash(local)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_crash_is_raised_by_check_once():
    with LocalAgentLoop() as local:
        crash(local)
        with pytest.raises(RuntimeError, match="crashed"):
            local.check()
        local.check()


def test_the_exception_of_the_block_wins_over_a_crash():
    with pytest.raises(KeyError, match="mine"), LocalAgentLoop() as local:
        crash(local)
        raise KeyError("mine")


def test_work_handed_over_raises_in_the_callers_thread():
    server = LoopServer(lambda request: None)
    server.start(0)
    with pytest.raises(ZeroDivisionError):
        server.call(lambda: 1 // 0)
    assert server.call(server.call, lambda: 5) == 5
    server.close()
    with pytest.raises(RuntimeError, match="not running"):
        server.call(lambda: 1)


def test_work_that_is_never_picked_up_ends_with_the_thread():
    server = LoopServer(lambda request: None)
    server.start(0)
    loop, thread = server.loop, server._thread
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.call_soon_threadsafe = lambda *work: None
    with pytest.raises(RuntimeError, match="not running"):
        server.call(lambda: 1)


# --- data


def test_datasets_come_from_lists_and_files(local, tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('\ufeff{"id": 1, "文": "字"}\n\n{"id": 2}\n', encoding="utf-8")
    table = tmp_path / "rows.csv"
    table.write_text('id,text\n1,"a\nb"\n', encoding="utf-8")
    assert local.load_dataset(lines, "lines") == "lines"
    assert ids(local, "SELECT 文 FROM lines ORDER BY id", "lines") == ["字", None]
    local.load_dataset(str(table), "table")
    assert ids(local, 'SELECT text FROM "table"', "table") == ["a\nb"]
    table.write_text("id,text\n1,{}\n".format("x" * 200_000), encoding="utf-8")
    local.load_dataset(table, "long")
    assert ids(local, "SELECT length(text) FROM long", "long") == [200_000]
    local.load_dataset([], "none")
    assert ids(local, "SELECT id FROM none", "none") == []


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="the csv module reads NUL since 3.11")
def test_a_table_that_the_csv_module_refuses_is_refused(local, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("id,text\n1,\0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: line contains NUL"):
        local.load_dataset(table)


def test_a_file_that_is_no_dataset_is_refused(local, tmp_path):
    other = tmp_path / "rows.xlsx"
    other.write_bytes(b"")
    with pytest.raises(ValueError, match=r"\.jsonl or \.csv"):
        local.load_dataset(other)
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"id": 1}\n[1]\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2 is not a JSON object"):
        local.load_dataset(lines)
    table = tmp_path / "rows.csv"
    table.write_text('id,text\n1,"two\nlines"\n2,hello, world\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 4 has more values than the header"):
        local.load_dataset(table)
    lines.write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(ConfigurationError, match="is UTF-8"):
        local.load_dataset(lines)
    with pytest.raises(ConfigurationError, match="row 2 is not JSON: Object of type set"):
        local.load_dataset([{}, {"when": {1, 2}}])


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id,q,q", "has the column 'q' 2 times"),
        ("q,id,q,q", "has the column 'q' 3 times"),
    ],
)
def test_a_table_whose_columns_share_a_name_is_refused(local, tmp_path, header, says):
    table = tmp_path / "rows.csv"
    table.write_text(header + "\n1,a,b,c\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=says):
        local.load_dataset(table)


@pytest.mark.parametrize(
    "lines",
    [["id,q,,", "1,a,,", "2,b"], [",id,,q", ",1,,a", "", ",2,,b"], ["id,q,", "1,a,", "2,b"]],
)
def test_columns_without_name_and_values_do_no_harm(local, tmp_path, lines):
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(lines), encoding="utf-8")
    local.load_dataset(table)
    assert ids(local, "SELECT id FROM dataset ORDER BY id") == ["1", "2"]
    assert ids(local, "SELECT q FROM dataset ORDER BY id") == ["a", "b"]
    # as earlier versions read them: another set of columns would make every row a new task
    assert not any(ids(local, 'SELECT "" FROM dataset'))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,q,,\n1,a,,\n2,b,,c\n", "line 3 has a value in column 4"),
        ('id,q,,\n1,"two\nlines",,\n2,b,c,\n', "line 4 has a value in column 3"),
        (",,\n,,\n", "names no column"),
    ],
)
def test_a_value_in_a_column_without_a_name_is_refused_with_its_place(local, tmp_path, text, says):
    table = tmp_path / "rows.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=says):
        local.load_dataset(table)
    local.load_dataset([{"id": "mine"}])  # nothing of the table was stored
    assert ids(local) == ["mine"]


def test_the_index_that_pandas_writes_first_and_without_a_name_is_read(local, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text(",id,q\n0,a,x\n1,b,y\n", encoding="utf-8")
    local.load_dataset(table)
    assert ids(local) == ["a", "b"]
    assert ids(local, 'SELECT "" FROM dataset ORDER BY id') == ["0", "1"]


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [900, 1_000, 5_000, 100_000])
def test_a_row_that_is_nested_too_deeply_is_refused_with_its_line(local, tmp_path, levels):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{{"id": 1}}\n\n{{"id": 2, "d": {}}}\n'.format(nested(levels)), "utf-8")
    with pytest.raises(ConfigurationError, match="line 3 is nested too deeply: at most 900"):
        local.load_dataset(lines)


def test_a_list_that_is_nested_too_deeply_is_refused_and_many_brackets_are_not(local):
    deep = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ConfigurationError, match="row 2 is nested too deeply"):
        local.load_dataset([{"id": 1}, {"id": 2, "d": deep}])
    wide = {"text": "[" * 2_000, "list": [{"a": []}] * 2_000, "deep": json.loads(nested(800))}
    local.load_dataset([{"id": 1, "d": wide}])
    assert ids(local, "SELECT d FROM dataset") == [wide]


@pytest.mark.parametrize("rows", [None, 5, b"x", {"id": 1}, True])
def test_rows_that_are_no_list_are_refused(local, rows):
    with pytest.raises(ConfigurationError, match="rows must be a list of dicts"):
        local.load_dataset(rows)
    with pytest.raises(ConfigurationError, match="rows must be a list of dicts"):
        local.put_logs("experiment_detail", rows)
    with pytest.raises(ConfigurationError, match="rows must be a list of dicts"):
        local.score(new_run(local), rows)


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_dataset_has_a_name(local, name):
    with pytest.raises(ConfigurationError, match="name must be a text"):
        local.load_dataset([{"id": 1}], name)


@pytest.mark.parametrize(
    "name, value",
    [
        ("dataset", None),
        ("dataset", ""),
        ("name", 5),
        ("experiment_type", "zz"),
        ("experiment_type", None),
        ("selected_item_ids", "12"),
        ("selected_item_ids", 12),
        ("selected_item_ids", [None]),
        ("selected_item_ids", [""]),
        ("selected_item_ids", {"1": 1}),
        ("query_sql", None),
        ("pipeline_name", None),
        ("evaluators", "accuracy"),
        ("evaluators", ["accuracy"]),
        ("evaluators", 5),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(local, client, name, value):
    with pytest.raises(ConfigurationError, match=name + " must be"):
        local.create_plan(**{name: value})
    listed = client.list_experiment_plans(SPACE, m.ListExperimentPlansRequest()).body
    assert listed.total == 0


def test_ids_of_rows_may_be_numbers_and_come_from_any_iterable(local, client):
    for ids_given in ([1, "2"], (i for i in (1, "2")), {1: 0, "2": 0}.keys()):
        plan_id = local.create_plan(selected_item_ids=ids_given)
        plan = client.get_experiment_plan(SPACE, plan_id, m.GetExperimentPlanRequest()).body
        assert plan.selected_item_ids == [1, "2"]


@pytest.mark.parametrize(
    "name, value",
    [
        ("name", "X Y!"),
        ("name", "ab"),
        ("name", None),
        ("query", ""),
        ("query", None),
        ("nodes", "n"),
        ("nodes", [5]),
        ("nodes", {"id": "n"}),
        ("logstore", None),
    ],
)
def test_a_pipeline_that_the_platform_would_not_take_is_refused(local, name, value):
    with pytest.raises(ConfigurationError, match=name + " must be"):
        local.create_pipeline(**{"name": "pipe", name: value})


@pytest.mark.parametrize(
    "name, value",
    [
        ("port", "80"),
        ("port", -1),
        ("port", 65536),
        ("port", True),
        ("path", 5),
        ("path", ""),
        ("agent_space", ""),
        ("project", None),
        ("region_id", 5),
        ("access_key_id", None),
        ("access_key_secret", ""),
    ],
)
def test_a_server_that_cannot_be_is_refused_before_it_starts(name, value):
    with pytest.raises(ConfigurationError, match=name + " must be"):
        LocalAgentLoop(**{name: value})


def test_what_is_asked_for_has_a_name(local):
    for ask_for in (
        lambda: local.rows(5),
        lambda: local.rows(logstore=None),
        lambda: local.wait_for(None),
        lambda: local.wait_for("PutLogs", "1"),
        lambda: local.wait_for("PutLogs", 1, None),
        lambda: local.set_access_key("id", "secret", ""),
        lambda: local.revoke_access_key(None),
        lambda: local.record(["x"]),
        lambda: local.updates(None),
        lambda: local.put_logs(["x"], []),
        lambda: local.score(None, []),
    ):
        with pytest.raises(ConfigurationError, match="must be a"):
            ask_for()


@pytest.mark.parametrize("flag", ["no", 0, None])
def test_a_text_does_not_count_as_true(local, flag):
    for ask_for in (
        lambda: LocalAgentLoop(writable_sql=flag),
        lambda: local.load_dataset([{"id": 1}], replace=flag),
        lambda: local.faults.drop("PutLogs", stored=flag),
        lambda: local.faults.empty_previews(calls=1, per_trace=flag),
        lambda: local.faults.ignore_client_tokens(flag),
    ):
        with pytest.raises(ConfigurationError, match="must be True or False"):
            ask_for()


def test_a_dataset_is_replaced_only_where_asked(local):
    local.load_dataset([{"id": 1}], replace=True)
    local.load_dataset([{"id": 2, "new": 3}], replace=True)
    assert ids(local, "SELECT new FROM dataset WHERE id = 2") == [3]
    assert ids(local) == [2]


def test_a_failed_load_changes_nothing(local):
    local.load_dataset([{"id": 1}])
    with pytest.raises(ServiceError, match="another name=, or pass replace=True"):
        local.load_dataset([{"id": 2}])
    assert ids(local) == [1]


def test_plans_and_pipelines_are_made_for_tests(local, client):
    name = local.create_pipeline("pipe", query="a: b", nodes=[{"id": "n", "type": "project"}])
    plan_id = local.create_plan(
        "faq",
        "mine",
        experiment_type="ONLINE",
        selected_item_ids=("1",),
        query_sql="level > 2",
        pipeline_name=name,
        evaluators=[{"name": "e"}],
    )
    plan = client.get_experiment_plan(SPACE, plan_id, m.GetExperimentPlanRequest()).body
    assert (plan.plan_name, plan.experiment_type, plan.dataset_id) == ("mine", "online", "faq")
    assert (plan.selected_item_ids, plan.query_sql) == (["1"], "level > 2")
    assert plan.pipeline_name == "pipe"
    pipeline = client.get_pipeline(SPACE, "pipe", m.GetPipelineRequest()).body
    assert pipeline.source.logstore.query == "a: b"
    assert pipeline.source.logstore.project == "local-project"


def test_put_logs_stores_any_value_as_text(local):
    assert local.put_logs("experiment_detail", [{"a": 1, "b": {"c": None}, "__time__": 5}]) == 1
    (row,) = local.rows()
    assert (row["a"], row["b"], row["__time__"]) == ("1", '{"c": null}', "5")
    with pytest.raises(ServiceError, match="does not exist"):
        local.put_logs("none", [{"a": 1}])


def test_a_failed_write_of_logs_leaves_none_behind(local):
    with pytest.raises(ValueError):
        local.put_logs("experiment_detail", [{"a": 1}, {"a": 2, "__time__": "soon"}])
    with pytest.raises(OverflowError):
        local.put_logs("experiment_detail", [{"a": 1}, {"a": 2, "__time__": 2**70}])
    assert local.rows() == []


def test_waiting_for_requests_ends_when_they_came_or_after_the_timeout(local, logs):
    assert not local.wait_for("PutLogs", timeout=0)
    waiter = threading.Thread(target=put, args=(logs, {"a": "1"}))
    waiter.start()
    assert local.wait_for("PutLogs")
    waiter.join()
    assert local.requests == {"PutLogs": 1}


def test_a_file_survives_a_restart(tmp_path):
    path = tmp_path / "local.db"
    with LocalAgentLoop(path) as local:
        local.load_dataset([{"id": 1, "flag": True}])
        local.load_dataset([{"id": 2}], "gone")
        openapi_client(local).delete_dataset(SPACE, "gone", m.DeleteDatasetRequest())
        record_id = new_run(local, status="running")
        put(log_client(local), {"experiment_id": record_id})
        update = m.UpdateExperimentRunRequest(total_tasks=3)
        openapi_client(local).update_experiment_run(SPACE, record_id, update)
    with LocalAgentLoop(path) as local:
        assert ids(local, "SELECT flag FROM dataset") == [True]
        assert local.record(record_id)["totalTasks"] == 3
        assert local.updates(record_id) == [{"totalTasks": 3}]
        assert len(local.rows(record_id)) == 1
        local.load_dataset([{"id": 3}], "gone")


# --- from another process


def control(endpoint, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(endpoint.split("://")[1], timeout=30)
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
        body = body if isinstance(body, str) else json.dumps(body)
    connection.request(method, "/_local/" + path, body, headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


@pytest.fixture
def ask(local):
    def run(method, path, body=None, **headers):
        return control(local.endpoints.agentloop_endpoint, method, path, body, **headers)

    return run


def test_everything_can_be_read_from_outside(local, logs, ask):
    record_id = new_run(local)
    update = m.UpdateExperimentRunRequest(total_tasks=3)
    openapi_client(local).update_experiment_run(SPACE, record_id, update)
    put(logs, {"experiment_id": record_id, "a": "1"}, {"a": "2"})
    assert ask("GET", "requests")[1]["PutLogs"] == 1
    assert [row["a"] for row in ask("GET", "rows")[1]] == ["1", "2"]
    assert [row["a"] for row in ask("GET", "rows?record=" + record_id)[1]] == ["1"]
    assert ask("GET", "rows?logstore=evaluation_detail") == (200, [])
    assert ask("GET", "rows?project=other") == (200, [])
    assert ask("GET", "records") == (200, [record_id])
    assert ask("GET", "record?record=" + record_id) == (200, local.record(record_id))
    assert ask("GET", "updates?record=" + record_id) == (200, [{"totalTasks": 3}])


def test_the_endpoints_can_be_read_from_outside(local, ask):
    assert ask("GET", "endpoints") == (200, vars(local.endpoints))


def test_logs_and_scores_can_be_stored_from_outside(local, ask):
    rows = [{"traceId": "a" * 32}]
    assert ask("POST", "logs", {"logstore": "logstore-tracing", "rows": rows}) == (
        200,
        {"stored": 1},
    )
    assert len(local.rows(logstore="logstore-tracing")) == 1
    record_id = new_run(local)
    status, found = ask("POST", "score", {"record": record_id, "rows": [{"score_value": 1}]})
    assert status == 200
    assert local.record(record_id)["evaluationTaskId"] == found["evaluationTaskId"]


def test_faults_can_be_injected_and_stopped_from_outside(local, logs, ask, code_of):
    status, fault = ask("POST", "faults", {"call": "outage", "mode": "429", "action": "PutLogs"})
    assert (status, fault) == (200, {"id": 0})
    assert code_of(put, logs, {"a": "1"}) == (429, "ExceedQuota")
    assert ask("POST", "faults", {"call": "stop", "id": 0}) == (200, {"hits": 1})
    put(logs, {"a": "1"})
    assert ask("POST", "faults", {"call": "ignore_client_tokens"}) == (200, {})
    assert ask("POST", "faults", {"call": "clear"}) == (200, {})


@pytest.mark.parametrize(
    "method, path, body, expected",
    [
        ("GET", "nothing", None, 404),
        ("POST", "rows", {}, 404),
        ("GET", "record?record=x", None, 404),
        ("POST", "score", {"record": "x"}, 404),
        ("POST", "logs", {"logstore": "x"}, 404),
        ("POST", "logs", {"logstore": "experiment_detail", "rows": [1]}, 400),
        ("POST", "score", {"record": "x", "rows": "abc"}, 400),
        ("POST", "faults", {"call": "judge"}, 400),
        ("POST", "faults", {"call": "fail", "action": "*", "when": "x"}, 400),
        ("POST", "faults", {"call": "fail", "unknown": 1}, 400),
        ("POST", "faults", {"call": "outage", "mode": "x"}, 400),
        ("POST", "faults", {"call": "stop", "id": 7}, 404),
        ("POST", "faults", [], 400),
        ("POST", "faults", "{", 400),
    ],
)
def test_a_control_request_that_is_wrong_says_so(ask, method, path, body, expected):
    status, answer = ask(method, path, body)
    assert status == expected
    assert answer["Message"]


def test_a_web_page_cannot_inject_faults(ask):
    status, _ = ask("POST", "faults", "{}", **{"Content-Type": "text/plain"})
    assert status == 415


def serve(*arguments, **options):
    command = [sys.executable, "-m", "agentloop_experiment_sdk.local", *arguments]
    options.setdefault("stdin", subprocess.PIPE)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def test_a_process_of_its_own_serves_until_its_input_is_closed(tmp_path):
    lines = tmp_path / "faq.jsonl"
    lines.write_text('{"id": 1}\n', encoding="utf-8")
    with serve("--dataset", str(lines), "--dataset", "other={}".format(lines)) as process:
        said = json.loads(process.stdout.readline())
        assert sorted(said["plans"]) == ["faq", "other"]
        assert said["plan_id"] == said["plans"]["faq"]
        assert said["pid"] == process.pid
        assert control(said["sls_endpoint"], "GET", "requests") == (200, {})
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_a_process_of_its_own_ends_on_sigterm(tmp_path):
    path = str(tmp_path / "db")
    arguments = ("--path", path, "--forever", "--put-logs-ms", "1", "--openapi-ms", "1")
    with serve(*arguments, stdin=subprocess.DEVNULL) as process:
        said = json.loads(process.stdout.readline())
        assert said["plan_id"] is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert os.path.exists(path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for children")
def test_a_process_of_its_own_ends_on_ctrl_c():
    with serve() as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_the_command_line_loads_datasets_and_waits_for_its_input(monkeypatch, capsys, tmp_path):
    lines = tmp_path / "faq.jsonl"
    lines.write_text('{"id": 1}\n', encoding="utf-8")
    previous = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ignored")))
    options = ["--put-logs-ms", "1", "--openapi-ms", "2", "--dataset", "n=" + str(lines)]
    try:
        assert main(options) == 0
        assert signal.getsignal(signal.SIGTERM) is not previous
        assert main(["--dataset", str(lines)]) == 0
    finally:
        signal.signal(signal.SIGTERM, previous)
    first, second = capsys.readouterr().out.splitlines()
    assert list(json.loads(first)["plans"]) == ["n"]
    assert json.loads(second)["plans"] == {"faq": json.loads(second)["plan_id"]}


def test_a_request_that_no_row_was_decoded_for_contains_only_its_text():
    request = Request("POST", "/a?b=c", {}, "ü".encode())
    assert request.contains("b=c")
    assert request.contains("ü")
    assert not request.contains("d")


def test_equal_plans_have_one_id_also_after_a_restart() -> None:
    ids = []
    for name in ("local plan", "local plan", "another"):
        with LocalAgentLoop() as local:
            ids.append(local.create_plan(local.load_dataset([{"id": "1"}]), name))
            assert local.create_plan("dataset", name) == ids[-1]
            assert local.create_plan("dataset", name, query_sql="id > 1") != ids[-1]
    assert ids[0] == ids[1] != ids[2]


def test_the_order_in_which_rows_were_added_is_no_other_plan(local, client) -> None:
    dataset = local.load_dataset([{"id": "10"}, {"id": "9"}])
    plan = local.create_plan(dataset)
    client.update_experiment_plan(SPACE, plan, m.UpdateExperimentPlanRequest(description="mine"))
    assert local.create_plan(dataset, query_sql="ORDER BY rowid") == plan
    stored = client.get_experiment_plan(SPACE, plan, m.GetExperimentPlanRequest()).body
    assert (stored.query_sql, stored.description) == ("ORDER BY rowid", "mine")
    assert local.create_plan(dataset) == plan
    assert local.create_plan(dataset, query_sql="ORDER BY id") != plan
