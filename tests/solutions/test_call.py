"""How a solution is called and what its answer becomes (kinds of C52, C53 and C56)."""

import asyncio
import functools
import itertools

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import SolutionOutput, Task
from agentloop_experiment_sdk.solutions import call

TASK = Task("t-1", {"q": "hi"})


def hook():
    """Stands for the executor's pre_hook."""


def invoke(solution):
    return call.prepare(solution)(TASK, hook)


class Agent:
    def answer(self, task, pre_hook):
        return (self, task, pre_hook)

    def __call__(self, task):
        return ("called", task)

    @classmethod
    def made(cls, task, pre_hook):
        return (cls, task, pre_hook)

    @staticmethod
    def plain(task):
        return (task,)


class AsyncAgent:
    async def __call__(self, task, pre_hook):
        return "from object"


class AsyncStream:
    async def __call__(self, task):
        yield "a"


def positional_only(task, pre_hook, /):
    return (task, pre_hook)


def positional_only_gap(task, retries=2, pre_hook=None, /):
    return (task, retries, pre_hook)


BOTH = [
    lambda task, pre_hook: (task, pre_hook),
    lambda task, whatever: (task, whatever),
    lambda task, pre_hook=None: (task, pre_hook),
    lambda task, *, pre_hook: (task, pre_hook),
    lambda task, *, pre_hook=None: (task, pre_hook),
    lambda pre_hook, task: (task, pre_hook),
    lambda *args: args,
    lambda task, *rest: (task,) + rest,
    lambda *args, pre_hook: args + (pre_hook,),
    lambda pre_hook, *args: args + (pre_hook,),
    lambda task, model="small", pre_hook=None: (task, pre_hook) if model == "small" else None,
    lambda *, task, pre_hook: (task, pre_hook),
    functools.partial(lambda prefix, task, pre_hook: (task, pre_hook), "p-"),
    positional_only,
]
ONE = [
    lambda task: (task,),
    lambda anything: (anything,),
    lambda task, retries=3: (task,) if retries == 3 else None,
    lambda task, retries=3, *rest: (task,) + rest if retries == 3 else None,
    lambda task, *, retries=3: (task,) if retries == 3 else None,
    lambda task, **options: (task,) if not options else None,
    lambda *, task: (task,),
    lambda *, row, size=1: (row,),
    functools.partial(lambda client, task: (task,), client="c"),
    functools.partial(lambda client, task: (task,), "c"),
    Agent.plain,
]


@pytest.mark.parametrize("solution", BOTH)
def test_task_and_pre_hook_reach_their_parameters(solution):
    assert invoke(solution) == (TASK, hook)


@pytest.mark.parametrize("solution", ONE)
def test_a_solution_that_takes_only_the_task_gets_only_the_task(solution):
    assert invoke(solution) == (TASK,)


def test_methods_class_methods_and_callable_objects_are_called_with_their_own_self():
    agent = Agent()
    assert invoke(agent.answer) == (agent, TASK, hook)
    assert invoke(Agent.made) == (Agent, TASK, hook)
    assert invoke(agent) == ("called", TASK)


def test_pre_hook_never_takes_the_place_of_a_users_default():
    assert invoke(positional_only_gap) == (TASK, 2, None)
    mine = functools.partial(lambda task, pre_hook: (task, pre_hook), pre_hook="mine")
    assert invoke(mine) == (TASK, "mine")


def test_a_builtin_whose_signature_cannot_be_read_gets_the_task():
    with pytest.raises(ValueError):
        __import__("inspect").signature(str)
    assert invoke(str) == str(TASK)


def test_a_decorator_is_looked_through_only_where_it_says_nothing_itself():
    def inner(task):
        return (task,)

    @functools.wraps(inner)
    def transparent(*args, **kwargs):
        return inner(*args, **kwargs)

    def needs_client(task, client):
        return (task, client)

    @functools.wraps(needs_client)
    def with_client(task):
        return needs_client(task, "client")

    assert invoke(transparent) == (TASK,)
    assert invoke(with_client) == (TASK, "client")


@pytest.mark.parametrize(
    ("solution", "says"),
    [
        ("text", "must be callable"),
        (None, "must be callable"),
        (lambda: 1, "takes no argument for the task"),
        (AsyncAgent, "instantiated first"),
        (lambda task, hook, more: 1, "requires more besides"),
        (lambda task, *, client: 1, "requires client besides"),
        (functools.partial(lambda a, b, c, d: 1, 1), "requires d besides"),
    ],
)
def test_a_solution_that_cannot_be_called_is_refused_before_the_run(solution, says):
    with pytest.raises(ConfigurationError, match=says):
        call.prepare(solution)


async def _async_function(task, pre_hook):
    return "answer"


async def _async_generator(task):
    yield "a"


@pytest.mark.parametrize(
    "solution",
    [
        _async_function,
        _async_generator,
        AsyncAgent(),
        AsyncStream(),
        AsyncAgent().__call__,
        functools.partial(_async_function, pre_hook=None),
        functools.partial(AsyncAgent()),
    ],
)
def test_async_callables_are_recognised(solution):
    assert call.is_async(solution)


@pytest.mark.parametrize("solution", [Agent(), Agent().answer, AsyncAgent, len, "text"])
def test_plain_callables_are_not_async(solution):
    assert not call.is_async(solution)


def test_an_awaitable_that_a_plain_callable_returned_is_recognised_and_awaited():
    value = (lambda task: _async_function(task, hook))(TASK)
    stream = _async_generator(TASK)
    assert call.needs_loop(value) and call.needs_loop(stream)
    assert not call.needs_loop("text") and not call.needs_loop(iter("text"))
    assert asyncio.run(call.finish_async(value)) == SolutionOutput.success("answer")
    assert asyncio.run(call.finish_async(stream)) == SolutionOutput.success("a")


def test_a_coroutine_that_returns_a_stream_or_another_awaitable_is_followed():
    async def outer():
        return _async_function(TASK, hook)

    async def streaming():
        return iter(["a", "b"])

    assert asyncio.run(call.finish_async(outer())).output == "answer"
    assert asyncio.run(call.finish_async(streaming())).output == "ab"


@pytest.mark.parametrize("value", [None, "", 0, {"success": False}, [1], object()])
def test_a_plain_value_is_a_success_that_holds_it(value):
    output = call.to_output(value)
    assert output.success is True and output.output is value


def test_a_solution_output_is_passed_on_untouched():
    output = SolutionOutput.failure("Refused", "no")
    assert call.to_output(output) is output


def test_a_generator_is_collected_text_joined_other_items_listed():
    assert call.to_output(piece for piece in ("a", "b")).output == "ab"
    assert call.to_output(iter([])).output == ""
    assert call.to_output(item for item in ({"n": 1}, "b")).output == [{"n": 1}, "b"]
    assert call.to_output(itertools.islice(itertools.count(), 3)).output == [0, 1, 2]


def test_a_generator_can_give_its_answer_as_last_item_or_return_value():
    final = SolutionOutput.success("final", {"traceId": "1" * 32})

    def last_item():
        yield "step"
        yield final

    def returned(answer):
        yield "step"
        return answer

    assert call.to_output(last_item()) is final
    assert call.to_output(returned(final)) is final
    output = call.to_output(returned({"answer": 42}))
    assert (output.output, output.trajectory) == ({"answer": 42}, ["step"])


def test_a_stream_that_raises_fails_the_row_and_keeps_its_pieces():
    def broken():
        yield "half"
        raise RuntimeError("line cut")

    async def broken_async():
        yield "half"
        raise RuntimeError("line cut")

    for output in (call.to_output(broken()), asyncio.run(call.collect_async(broken_async()))):
        assert output.success is False and output.output == "half"
        assert output.meta["error_message"] == "line cut"


def _raised(error):
    try:
        raise error
    except BaseException as caught:
        return call.failure_from(caught)


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("bad row"), "ValueError", "bad row"),
        (TimeoutError(), "TimeoutError", "TimeoutError()"),
        (SystemExit(3), "SystemExit", "the solution called sys.exit(3)"),
        (SystemExit("agent gave up"), "SystemExit", "agent gave up"),
        (asyncio.CancelledError(), "CancelledError", "CancelledError()"),
        (Unprintable(), "Unprintable", "its message cannot be read"),
    ],
)
def test_an_exception_becomes_a_failure_named_after_it(error, kind, message):
    output = _raised(error)
    assert output.success is False
    assert output.meta["error_type"] == kind
    assert output.meta["error_message"].startswith(message)


def test_the_traceback_shows_the_users_frames_without_ours():
    def fails(task):
        raise KeyError("column")

    try:
        call.to_output(call.prepare(fails)(TASK, hook))
    except KeyError as error:
        text = call.failure_from(error).meta["traceback"]
    assert "in fails" in text and "KeyError: 'column'" in text

    def broken():
        yield 1
        raise KeyError("column")

    text = call.to_output(broken()).meta["traceback"]
    assert "in broken" in text and "in _collect" not in text


def test_an_endless_traceback_is_bounded():
    def deeper(level):
        return other(level)

    def other(level):
        return deeper(level + 1)

    try:
        deeper(0)
    except RecursionError as error:
        text = call.failure_from(error).meta["traceback"]
    assert len(text) <= 8000 and text.rstrip().splitlines()[-1].startswith("RecursionError")


def test_an_error_raised_before_any_user_frame_keeps_its_traceback():
    text = call.failure_from(ValueError("never raised")).meta["traceback"]
    assert text == "ValueError: never raised\n"


def test_credentials_in_an_exception_are_masked():
    meta = _raised(
        ValueError("GET https://u:pass-w0rd@host/?api_key=k3y-1 with Bearer abc12345")
    ).meta
    for text in (meta["error_message"], meta["traceback"]):
        assert "ValueError" in text or text.startswith("GET https://***@host/?api_key=***")
    assert "pass-w0rd" not in meta["error_message"] and "abc12345" not in meta["error_message"]


def test_an_output_of_a_subclass_without_its_fields_is_told_where_the_solution_ran():
    class Mine(SolutionOutput):
        def __init__(self, text):
            self.text = text

    def stream():
        yield Mine("x")

    for value in (Mine("x"), stream()):
        with pytest.raises(AttributeError):
            call.to_output(value)
