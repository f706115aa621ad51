"""The agent that the user names: a Python function, a URL, or a command."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote

from .. import jsontext
from ..errors import ConfigurationError
from ..models import HttpRequestSpec, Task
from .loading import load
from .templates import WHOLE_ROW, columns_in, fill, fill_text, has_placeholder

_WITH_BODY = ("POST", "PUT", "PATCH")
_EXTRACTORS = {
    "openai-chat": "openai_chat_extractor",
    "openai-completions": "openai_completions_extractor",
    "openai-responses": "openai_responses_extractor",
    "anthropic": "anthropic_extractor",
    "dashscope": "dashscope_extractor",
    "dify": "dify_extractor",
    "coze": "coze_extractor",
}
# options that only some kinds of agents have
_OF_KIND: Dict[Tuple[str, ...], Tuple[str, ...]] = {
    ("--http",): (
        "method",
        "header",
        "body",
        "body_field",
        "extractor",
        "trace_header",
        "transport_retries",
    ),
    ("--command",): ("stdin", "cwd", "trace"),
    ("--http", "--command"): ("timeout",),
}

EPILOG = """\
the agent is one of
  SOLUTION           agent.py:answer or package.module:answer; gets the task, sync or async
  --http URL         called once a row; the body is the row, --body or --body-field
  --command ARGV…    run once a row, without a shell; must come last on the line
In URL, body, command and --stdin, {column} stands for a column of the row, {task.input} for the
whole row as JSON. A command without any {column} gets the row as JSON on its standard input."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which agent to call."""
    add = parser.add_argument
    add("solution", nargs="?", metavar="SOLUTION", help="module:function or file.py:function")
    http = parser.add_argument_group("agent over HTTP").add_argument
    http("--http", metavar="URL", help="call this URL")
    http("--method", help="default: POST")
    http("--header", action="append", metavar="'NAME: VALUE'", help="may be given again")
    http("--body", metavar="JSON", help="the body, with {column} placeholders")
    http(
        "--body-field",
        action="append",
        metavar="NAME=VALUE",
        help="one field of the body, dots nest: input.text={question}; may be given again",
    )
    http(
        "--extractor",
        metavar="NAME",
        help="reads event streams: {}, or module:function".format(", ".join(_EXTRACTORS)),
    )
    http("--trace-header", metavar="NAME", help="response header that holds the trace id")
    http("--transport-retries", type=int, metavar="N", help="default: 2")
    command = parser.add_argument_group("agent as a command").add_argument
    command("--stdin", metavar="TEXT", help="its standard input, with {column}; none closes it")
    command("--cwd", metavar="DIR", help="its working directory")
    command("--trace", action="store_true", help="it reports spans under TRACEPARENT")
    command(
        "--command",
        dest="argv",
        nargs=argparse.REMAINDER,
        metavar="ARGV",
        help="run this; everything after it belongs to the command",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="for one HTTP call (default: 300) or command (default: 60)",
    )


def solution_of(options: argparse.Namespace) -> Any:
    """The solution that the options describe.

    Raises:
        ConfigurationError: There is none, more than one, or it cannot be used.
    """
    kinds = {"SOLUTION": options.solution, "--http": options.http, "--command": options.argv}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise ConfigurationError(
            "Name one agent: SOLUTION (such as agent.py:answer), --http URL or --command ARGV; "
            "{}.".format("got " + " and ".join(given) if given else "got none")
        )
    _check_kind(options, given[0])
    if options.http is not None:
        return _http(options)
    return load(options.solution, "solution") if options.solution else _command(options)


def _check_kind(options: argparse.Namespace, kind: str) -> None:
    """Options of another kind of agent would be ignored in silence."""
    wrong = [name for owner, names in _OF_KIND.items() if kind not in owner for name in names]
    for name in wrong:
        if getattr(options, name) not in (None, False):
            raise ConfigurationError(
                "--{} does not go with {}.{}".format(
                    name.replace("_", "-"),
                    kind,
                    " Use --task-timeout." if name == "timeout" else "",
                )
            )


@dataclass(frozen=True)
class TemplatedRequest:
    """Makes the request of a row from templates; ``body`` None sends none."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: Any = None

    @property
    def required_columns(self) -> List[str]:
        """The columns without which no row can be asked."""
        return sorted(columns_in([self.url, self.body]))

    def __call__(self, task: Task) -> HttpRequestSpec:
        url = fill_text(self.url, task, lambda text: quote(text, safe=""))
        return HttpRequestSpec(url, self.method, dict(self.headers), json=fill(self.body, task))


@dataclass(frozen=True)
class TemplatedCommand:
    """Makes the command of a row from templates; ``stdin`` None closes its input."""

    argv: Tuple[str, ...]
    stdin: Optional[str] = None

    @property
    def required_columns(self) -> List[str]:
        """The columns without which no row can be asked."""
        return sorted(columns_in([*self.argv, self.stdin]))

    def __call__(self, task: Task) -> Dict[str, Any]:
        stdin = None if self.stdin is None else fill_text(self.stdin, task)
        return {"argv": [fill_text(text, task) for text in self.argv], "stdin": stdin}


def _http(options: argparse.Namespace) -> Any:
    from ..solutions.http import http_solution
    from ..solutions.redact import redact_body, redact_url

    method = (options.method or "POST").upper()
    request = TemplatedRequest(
        options.http, method, _headers(options.header or ()), _body(options, method)
    )
    HttpRequestSpec(request.url, method, dict(request.headers))  # a bad URL is told at once
    retries = options.transport_retries
    solution = http_solution(
        request,
        default_timeout=300.0 if options.timeout is None else options.timeout,
        chunk_extractor=_extractor(options.extractor),
        transport_retries=2 if retries is None else retries,
        trace_id_response_header=options.trace_header,
    )
    # the templates are the agent's version as much as its URL is
    shown = jsontext.dumps(redact_body(request.body))
    solution.fingerprint = "http {} {} {}".format(method, redact_url(request.url), shown)
    return solution


def _body(options: argparse.Namespace, method: str) -> Any:
    body: Any = WHOLE_ROW if method in _WITH_BODY else None
    if options.body is not None:
        try:
            body = json.loads(options.body)
        except ValueError as error:
            raise ConfigurationError("--body is not JSON: {}.".format(error)) from error
    if not options.body_field:
        return body
    fields: Dict[str, Any] = body if options.body is not None else {}
    if not isinstance(fields, dict):
        raise ConfigurationError("--body-field needs a --body that is a JSON object.")
    for text in options.body_field:
        name, value = pair(text, "--body-field")
        _put(fields, name, json_or_text(value))
    return fields


def _put(fields: Dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        fields = fields.setdefault(folder, {})
        if not isinstance(fields, dict):
            raise ConfigurationError("--body-field {}: {} is no object.".format(path, folder))
    fields[last] = value


def _headers(texts: Any) -> Dict[str, str]:
    headers: Dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            # the text is not repeated: it may be a secret
            raise ConfigurationError("--header must be written as 'Name: value'.")
        headers[name.strip()] = value.strip()
    return headers


def _extractor(name: Optional[str]) -> Any:
    if name is None:
        return None
    if ":" in name:
        return load(name, "extractor")
    if name not in _EXTRACTORS:
        raise ConfigurationError(
            "There is no extractor {!r}; there are {}, or write module:function.".format(
                name, ", ".join(_EXTRACTORS)
            )
        )
    from ..solutions import extractors

    return getattr(extractors, _EXTRACTORS[name])


def _command(options: argparse.Namespace) -> Any:
    from ..solutions.command import command_solution
    from ..solutions.redact import redact_argv, redact_text

    if not options.argv:
        raise ConfigurationError("--command needs the command to run after it.")
    stdin = options.stdin
    if stdin is None and not any(map(has_placeholder, options.argv)):
        stdin = WHOLE_ROW
    command = TemplatedCommand(tuple(options.argv), None if stdin == "none" else stdin)
    solution = command_solution(
        command,
        default_timeout=60.0 if options.timeout is None else options.timeout,
        cwd=options.cwd,
        trace=options.trace,
    )
    shown = " ".join(redact_argv(command.argv))
    if command.stdin is not None:
        shown += " < " + redact_text(command.stdin)
    solution.fingerprint = "command " + shown
    return solution


def pair(text: str, option: str) -> Tuple[str, str]:
    """``NAME=VALUE`` as its two halves.

    Raises:
        ConfigurationError: It is not of that form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigurationError("{} must be written as NAME=VALUE.".format(option))
    return name.strip(), value


def json_or_text(text: str) -> Any:
    """The JSON value that ``text`` is, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
