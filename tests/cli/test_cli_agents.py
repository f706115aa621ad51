"""Agents over HTTP and as commands: templates, defaults, fingerprints; and evaluators by name."""

from __future__ import annotations

import http.server
import json
import pathlib
import sys
import threading
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from agentloop_experiment_sdk import Task, load_result
from agentloop_experiment_sdk.cli import templates

ROW = Task("t-1", {"question": "a b", "count": 3, "tags": ["x"], "名": "中", "nothing": None})


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        answer = self.server.answer or body or b'""'  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", self.server.kind)  # type: ignore[attr-defined]
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST

    def log_message(self, *arguments: Any) -> None:
        pass


class EchoServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    answer = b""
    kind = "application/json"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.seen: List[Tuple[str, str, Dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return "http://127.0.0.1:{}".format(self.server_port)


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run_one(cli: Any, *options: Any) -> Any:
    return cli("run", "--local", "sums.jsonl", "--limit", 1, "--no-resume", *options)


def test_the_row_is_the_body_by_default(cli: Any, echo: EchoServer) -> None:
    assert run_one(cli, "--http", echo.url).code == 0
    (command, _, headers, body) = echo.seen[0]
    assert command == "POST"
    assert json.loads(body) == {"id": 0, "question": "0+0", "gold": "0"}
    assert "traceparent" in {name.lower() for name in headers}


def test_fields_headers_and_url_take_columns(cli: Any, echo: EchoServer) -> None:
    done = run_one(
        cli,
        *("--http", echo.url + "/items/{question}", "--method", "put"),
        *("--header", "X-Key: k:v", "--timeout", 20, "--transport-retries", 0),
        *("--trace-header", "X-Trace"),
        *("--body-field", "input.text=say {question}", "--body-field", "number={id}"),
        *("--body-field", "stream=false", "--body-field", "model=m"),
    )
    assert done.code == 0
    command, path, headers, body = echo.seen[0]
    assert (command, path) == ("PUT", "/items/0%2B0")
    assert {name.lower(): value for name, value in headers.items()}["x-key"] == "k:v"
    assert json.loads(body) == {
        "input": {"text": "say 0+0"},
        "number": 0,
        "stream": False,
        "model": "m",
    }


def test_a_body_template_may_have_more_fields(cli: Any, echo: EchoServer) -> None:
    body = '{"messages": [{"role": "user", "content": "{question}"}], "row": "{task.input}"}'
    run_one(cli, "--http", echo.url, "--body", body, "--body-field", "id={task.id}")
    sent = json.loads(echo.seen[0][3])
    assert sent["messages"] == [{"role": "user", "content": "0+0"}]
    assert sent["row"]["gold"] == "0"
    assert len(sent["id"]) == 36


def test_get_has_no_body(cli: Any, echo: EchoServer) -> None:
    run_one(cli, "--http", echo.url + "/?q={question}", "--method", "GET")
    assert echo.seen[0][0] == "GET" and echo.seen[0][3] == b""


@pytest.mark.parametrize("extractor", ["openai-chat", "agent_stream.py:piece"])
def test_extractors_are_named_or_the_users_own(
    cli: Any, work: pathlib.Path, echo: EchoServer, extractor: str
) -> None:
    (work / "agent_stream.py").write_text(
        "def piece(data):\n    return data['choices'][0]['delta']['content']\n"
    )
    echo.kind = "text/event-stream"
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "hi"}}]})
    echo.answer = "data: {0}\n\ndata: {0}\n\n".format(chunk).encode()
    run_one(cli, "--http", echo.url, "--extractor", extractor)
    assert [row.output for row in load_result("results")] == ["hihi"]


def test_secrets_stay_out_of_the_fingerprint_and_other_templates_are_another_agent(
    cli: Any, echo: EchoServer
) -> None:
    url = echo.url + "/?api_key=sesame"
    run_one(cli, "--http", url, "--body-field", "token=sesame")
    first = load_result("results").meta["solution"]
    run_one(cli, "--http", url, "--body-field", "token=sesame", "--body-field", "x=1")
    second = load_result("results").meta["solution"]
    assert "sesame" not in first["name"] and first["name"].startswith("http POST ")
    assert first["hash"] != second["hash"]


def test_an_unknown_column_is_named_before_the_agent_is_called(cli: Any, echo: EchoServer) -> None:
    refused = run_one(cli, "--http", echo.url, "--body-field", "q={questoin}")
    assert refused.code == 2 and not echo.seen
    assert "takes {questoin} from the row" in refused.err
    assert "its columns are id, question, gold" in refused.err


PROGRAM = (
    "import json,sys; row = json.load(sys.stdin); print(sum(map(int, row['question'].split('+'))))"
)


def test_a_command_gets_the_row_on_its_input(cli: Any) -> None:
    done = cli(
        *("run", "--local", "sums.jsonl", "--ground-truth-field", "gold"),
        *("--evaluator", "exact_match", "--min-score", "exact_match=1"),
        *("--command", sys.executable, "-c", PROGRAM),
    )
    assert done.code == 0, done.out
    name = load_result("results").meta["solution"]["name"]
    assert name.startswith("command ") and name.endswith(" < {task.input}")


def test_a_command_takes_columns_as_arguments_and_then_its_input_is_closed(cli: Any) -> None:
    code = "import sys; print(sys.argv[1:], repr(sys.stdin.read()))"
    run_one(cli, "--command", sys.executable, "-c", code, "{question}", "--json", '{"a": 1}')
    (row,) = load_result("results")
    assert row.output["stdout"].split() == ["['0+0',", "'--json',", '\'{"a":', "1}']", "''"]


def test_the_input_of_a_command_may_be_chosen(cli: Any, work: pathlib.Path) -> None:
    (work / "there").mkdir()
    code = "import os, sys; print(os.path.basename(os.getcwd()), repr(sys.stdin.read()))"
    argv = ["--command", sys.executable, "-c", code]
    run_one(cli, "--stdin", "q={question}", "--cwd", "there", "--trace", "--timeout", 30, *argv)
    (row,) = load_result("results")
    assert row.output["stdout"].split() == ["there", "'q=0+0'"]
    assert row.trace_id
    run_one(cli, "--stdin", "none", *argv)
    (row,) = load_result("results")
    assert row.output["stdout"].split()[1] == "''"


def test_a_commands_own_json_flag_is_not_ours(cli: Any) -> None:
    done = run_one(cli, "--command", sys.executable, "-c", "print(1)", "--json")
    assert "1 row, 1 succeeded" in done.out


def test_placeholders() -> None:
    assert templates.fill("{tags}", ROW) == ["x"]
    assert templates.fill("{nothing}", ROW) is None
    assert templates.fill({"a": ["{count}", "n={count}", 5]}, ROW) == {"a": [3, "n=3", 5]}
    assert templates.fill_text("{名}|{tags}|{nothing}|{task.id}", ROW) == '中|["x"]||t-1'
    assert templates.fill_text('{} {0} {{x {"question": 1}', ROW) == '{} {0} {{x {"question": 1}'
    assert templates.fill("{task.input}", ROW) == ROW.input


def test_a_module_is_found_in_the_working_directory(cli: Any, work: pathlib.Path) -> None:
    package = work / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text("def go(task):\n    return 'went'\n")
    cli("run", "pack.mine:go", "--local", "sums.jsonl")
    assert {row.output for row in load_result("results")} == {"went"}


def test_a_file_may_share_its_name_with_a_module_and_import_its_neighbours(
    cli: Any, work: pathlib.Path
) -> None:
    folder = work / "sub"
    folder.mkdir()
    (folder / "neighbour_of_json.py").write_text("WORD = 'near'\n")
    (folder / "json.py").write_text(
        "from neighbour_of_json import WORD\ndef go(task):\n    return WORD\n"
    )
    for _ in range(2):
        assert cli("run", "sub/json.py:go", "--local", "sums.jsonl").code == 0
    assert {row.output for row in load_result("results")} == {"near"}


def test_evaluators_have_settings_and_may_be_a_list(cli: Any) -> None:
    specs = [
        "exact_match:expected_field=gold,ignore_case=true",
        "numeric_close:0.5,expected_field=gold,name=close",
        "contains:text=,x=1,name=comma",
        "regex_match:^\\d{1,2}$",
        "latency_below:60000",
        "tokens_below:limit=10",
        "agent.py:EVALUATORS",
    ]
    options = [part for spec in specs for part in ("--evaluator", spec)]
    # a comma splits only before the name of a setting: "x=1" would be one
    bad = cli("run", "agent.py:answer", "--local", "sums.jsonl", *options)
    assert bad.code == 2 and "there is no setting 'x'" in bad.err
    options[5] = "contains:text=1, 2,name=comma"
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json", *options)
    metrics = done.result["metrics"]
    assert {name: found["mean"] for name, found in metrics.items() if found["rows"]} == {
        "exact_match": 1.0,
        "close": 1.0,
        "comma": 0.0,
        "regex_match": 1.0,
        "latency_below": 1.0,
        "polite": 0.0,
        "long_answer": 0.0,
    }
