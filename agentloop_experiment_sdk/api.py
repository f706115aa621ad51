"""What users call: check the arguments, hand over to ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

from .errors import ConfigurationError
from .plan.config import AgentLoopConfig

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .cloud.scores import CloudScores
    from .evaluate.evaluator import Evaluators
    from .report.summary import ExperimentResult
    from .run.check import CheckReport
    from .run.events import Event
    from .run.experiment import ExperimentRun
    from .run.options import AnyExecutor, Path, RunOptions, Solution, Undelivered, Workers
    from .run.settings import RunSettings
    from .solutions.command_turns import CommandBuilder


class Experiment:
    """An experiment: a plan, a solution, and how to run the one through the other.

    Making one does no IO. It can be run again: what is done is not run twice.

    Args:
        config: Which plan to run, and how to reach AgentLoop.
        solution: Takes a ``Task`` and, if it likes, a ``pre_hook``; sync or async; returns a
            ``SolutionOutput`` or any value.
        result_dir: The results directory.
        n_repeat: How often each row is run.
        n_workers: How many rows run at once. A range such as ``(4, 32)`` lets the run find out how
            many the agent bears: it begins with the lower number, runs more while that does no
            harm, and fewer after 429, 503 and the like, and when answers take twice as long.
            ``"auto"`` is the range from 1 to 64, beginning with 4.
        serial: With one worker, run a sync solution in the calling thread, if that runs no loop.
        resume: None goes on with an earlier run of the same experiment in ``result_dir`` and moves
            any other one to ``history/``; True demands that there is one to go on with; False
            always starts afresh.
        retry_failed: Run rows again that failed in an earlier run.
        row_retries: Try a failed row so many times more within this run; every try is kept.
        task_timeout: Seconds after which a row fails, whatever its solution does.
        limit: Run only the first so many rows.
        item_ids: Run only the rows with these dataset item ids.
        max_failures: End the run when more rows than this failed; a float is a share of all rows.
        stop_if_first: End the run when its first so many rows all failed with the same error.
        on_event: Called with every event of the run (``run.events``), from the run's own thread.
        progress: None logs progress at level INFO, True shows a bar (extra ``[progress]``), False
            says nothing; a callable gets the events.
        evaluators: Local evaluators, ``(task, output) -> bool | number | text | dict``.
        client_token: Makes the creation of the record idempotent where the platform allows.
        record_id: Write under this record instead of creating one.
        version: What is being tested; goes to ``experiment_config`` and ``task.metadata``.
        parameters: Likewise, any mapping.
        on_undelivered: ``"complete"`` completes the record although rows could not be delivered;
            ``"hold"`` leaves it running until ``deliver`` has sent them.
        drain_timeout: Seconds to keep trying at the end while SLS accepts nothing.
        stop_grace: Seconds that an interrupted run may take to put things in order.
        fsync: Flush every file to the disk: safe against power loss, and slower.
        executor: A ``concurrent.futures.Executor`` or a ``distributed.Client`` that runs the rows
            elsewhere; its own size then counts. ``n_workers`` is the least for a Dask cluster,
            which may grow, and the size of an executor that does not tell its own.
        max_rps: The most rows to start per second, evenly spaced; None for no limit.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    def __init__(
        self,
        config: AgentLoopConfig,
        solution: Solution,
        result_dir: Path = "./results",
        n_repeat: int = 1,
        n_workers: Workers = 4,
        *,
        serial: bool = False,
        resume: Optional[bool] = None,
        retry_failed: bool = False,
        row_retries: int = 0,
        task_timeout: Optional[float] = None,
        limit: Optional[int] = None,
        item_ids: Optional[Sequence[Any]] = None,
        max_failures: Union[None, int, float] = None,
        stop_if_first: Optional[int] = None,
        on_event: Optional[Callable[[Event], None]] = None,
        progress: Union[None, bool, Callable[[Event], None]] = None,
        evaluators: Evaluators = (),
        client_token: Optional[str] = None,
        record_id: Optional[str] = None,
        version: str = "",
        parameters: Optional[Mapping[str, Any]] = None,
        on_undelivered: Undelivered = "complete",
        drain_timeout: float = 300.0,
        stop_grace: float = 5.0,
        fsync: bool = False,
        executor: Optional[AnyExecutor] = None,
        max_rps: Optional[float] = None,
    ) -> None:
        options = dict(locals())
        for name in ("self", "config", "solution"):
            del options[name]
        if not isinstance(config, AgentLoopConfig):
            raise ConfigurationError(
                "config must be an AgentLoopConfig, or what local_config returns, not {!r}.".format(
                    type(config).__name__
                )
            )
        self._config = config
        self._solution = solution
        self._settings = _settings(options)
        self._run: Optional[ExperimentRun] = self._new_run()

    def run(self) -> ExperimentResult:
        """Run the experiment and wait for its end.

        Returns:
            The result, as ``load_result(result_dir)`` would read it.

        Raises:
            ConfigurationError: The config or its credentials cannot be used; nothing was sent.
            PlanError: The plan cannot be run offline; nothing was written.
            DatasetError: The dataset is empty or cannot be read; nothing was written.
            ResultsDirectoryError: The results directory is in use, or cannot be written.
            CloudError: AgentLoop refused or did not answer.
            RunAbortedError: ``max_failures``, ``stop_if_first`` or stuck rows ended the run.
            KeyboardInterrupt: Ctrl-C; finished rows are kept and delivered.
        """
        self._take_run().execute()
        return self._result()

    async def arun(self) -> ExperimentResult:
        """Run the experiment from code that awaits; cancelling it equals ``stop()``.

        Async solutions run on the caller's event loop, blocking work stays off it. Returns and
        raises what ``run`` does.
        """
        await self._take_run().execute_async()
        return self._result()

    def stop(self) -> None:
        """End the run early, from any thread; ``run`` then returns what is done.

        Running rows are ended or given a grace, finished ones are kept and delivered, and the
        record becomes ``failed``. Run again to go on.
        """
        if self._run is not None:
            self._run.stop()

    def check(self, limit: Optional[int] = None) -> CheckReport:
        """Ask for everything a run needs, without creating a record.

        Args:
            limit: Also call the agent for so many rows; None or 0 calls it for none.

        Returns:
            What was found, with the cause and the remedy of each failure.

        Raises:
            ConfigurationError: ``limit`` is no number of rows; nothing else is raised.
        """
        from .arguments import check_count
        from .run.check import Check

        check_count("limit", 0 if limit is None else limit, 0)
        return Check(self._config, self._solution, self._settings).run(limit)

    def _new_run(self) -> ExperimentRun:
        from .run.experiment import ExperimentRun

        return ExperimentRun(self._config, self._solution, self._settings)

    def _take_run(self) -> ExperimentRun:
        """A run that was not used yet; the one made first lets ``stop`` come before ``run``."""
        if self._run is None or self._run.used:
            self._run = self._new_run()
        return self._run

    def _result(self) -> ExperimentResult:
        from .report.summary import load_result

        return load_result(self._settings.result_dir, score_source=self._cloud_scores)

    def _cloud_scores(self, record_id: str, wait: float) -> CloudScores:
        from .cloud.agentloop import AgentLoopApi
        from .cloud.scores import read_scores
        from .cloud.sls import SlsLogstore

        access = self._config.connection.access()
        return read_scores(
            AgentLoopApi(access),
            self._config.agent_space,
            lambda project, logstore: SlsLogstore(access, project, logstore),
            record_id,
            wait,
        )


def run_experiment(
    config: AgentLoopConfig,
    solution: Solution,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: Workers = 1,
    **options: Unpack[RunOptions],
) -> str:
    """Run the plan's dataset through ``solution``, one row after the other.

    A sync solution runs in the calling thread, if that runs no event loop. With ``n_workers`` above
    1 it runs like ``run_experiment_parallel``.

    Args:
        config: Which plan to run, and how to reach AgentLoop.
        solution: Takes a ``Task`` and, if it likes, a ``pre_hook``; sync or async; returns a
            ``SolutionOutput`` or any value.
        result_dir: The results directory. A run in the directory of an earlier one goes on with it.
        n_repeat: How often each row is run.
        n_workers: How many rows run at once; a range or ``"auto"`` as for ``Experiment``.
        **options: The other options of ``Experiment``, under their names there.

    Returns:
        The id of the experiment record.

    Raises:
        ExperimentError: As ``Experiment.run``.
    """
    return _record_id(config, solution, result_dir, n_repeat, n_workers, True, options)


def run_experiment_parallel(
    config: AgentLoopConfig,
    solution: Solution,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: Workers = 4,
    **options: Unpack[RunOptions],
) -> str:
    """Run the plan's dataset through ``solution``, ``n_workers`` rows at once.

    ``config``, ``result_dir``, ``n_repeat``, ``**options`` and the rest: as ``run_experiment``.
    """
    return _record_id(config, solution, result_dir, n_repeat, n_workers, False, options)


def run_multi_turn_experiment(
    config: AgentLoopConfig,
    url: str,
    *,
    session_id: Optional[str] = None,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: Workers = 4,
    parallel: bool = True,
    **solution_options: Any,
) -> str:
    """Run whole conversations against an HTTP agent: one dataset row is one conversation.

    Args:
        config: Which plan to run.
        url: Where each turn is posted.
        session_id: The session id of every conversation; by default each gets its own.
        result_dir: The results directory.
        n_repeat: How often each conversation is held.
        n_workers: How many are held at once.
        parallel: False holds them one after the other.
        **solution_options: Those of ``multi_turn_http_solution_with``, and those of ``Experiment``.

    Returns:
        The id of the experiment record.

    Raises:
        ExperimentError: As ``Experiment.run``.
    """
    from .solutions.conversation import multi_turn_http_solution_with

    made_with, options = _split_options(solution_options)
    solution = multi_turn_http_solution_with(url, session_id=session_id, **made_with)
    workers: Workers = n_workers if parallel else 1
    return _record_id(config, solution, result_dir, n_repeat, workers, not parallel, options)


def run_multi_turn_agent_experiment(
    config: AgentLoopConfig,
    command_builder: CommandBuilder,
    *,
    session_id: Optional[str] = None,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: Workers = 1,
    parallel: bool = False,
    **solution_options: Any,
) -> str:
    """Run whole conversations with a command-line agent: one command a turn, one session a row.

    Args:
        config: Which plan to run.
        command_builder: ``(message, session_id, turn_index, task) -> argv``.
        session_id: The session id of every conversation; by default each gets its own.
        result_dir: The results directory.
        n_repeat: How often each conversation is held.
        n_workers: How many are held at once.
        parallel: False holds them one after the other.
        **solution_options: Those of ``multi_turn_cli_solution``, and those of ``Experiment``.

    Returns:
        The id of the experiment record.

    Raises:
        ExperimentError: As ``Experiment.run``.
    """
    from .solutions.conversation import multi_turn_cli_solution

    made_with, options = _split_options(solution_options)
    solution = multi_turn_cli_solution(command_builder, session_id=session_id, **made_with)
    workers: Workers = n_workers if parallel else 1
    return _record_id(config, solution, result_dir, n_repeat, workers, not parallel, options)


def evaluate(result_dir: Path, evaluators: Evaluators) -> ExperimentResult:
    """Run evaluators over the rows of a results directory; their earlier scores are replaced.

    The agent is not called, and SLS is not told: scores are local.

    Args:
        result_dir: A results directory that no run uses.
        evaluators: As for ``Experiment``.

    Returns:
        The result with the new scores.

    Raises:
        ConfigurationError: There are no evaluators, or an argument cannot be used.
        ResultsDirectoryError: The directory holds no results, or is in use.
    """
    from .arguments import path_of
    from .run.rescore import rescore

    return rescore(path_of("result_dir", result_dir), evaluators)


def local_config(local: Any, plan_id: str, **settings: Any) -> AgentLoopConfig:
    """The config that runs a plan of a ``LocalAgentLoop``.

    Args:
        local: A started ``LocalAgentLoop``, or its ``endpoints``.
        plan_id: What ``local.create_plan`` returned.
        **settings: Further settings of ``AgentLoopConfig``; they win.

    Raises:
        ConfigurationError: ``local`` is something else, or a setting cannot be used.
    """
    names = "agent_space region_id access_key_id access_key_secret agentloop_endpoint sls_endpoint"
    endpoints = getattr(local, "endpoints", local)
    try:
        known = {name: getattr(endpoints, name) for name in names.split()}
    except AttributeError as error:
        raise ConfigurationError(
            "local must be a LocalAgentLoop or its endpoints, not {!r}.".format(local)
        ) from error
    return AgentLoopConfig(**{"experiment_plan_id": plan_id, **known, **settings})


def _record_id(
    config: AgentLoopConfig,
    solution: Solution,
    result_dir: Path,
    n_repeat: int,
    n_workers: Workers,
    serial: bool,
    options: Mapping[str, Any],
) -> str:
    experiment = Experiment(
        config, solution, result_dir, n_repeat, n_workers, serial=serial, **options
    )
    return experiment._take_run().execute().record_id


def _settings(options: Mapping[str, Any]) -> RunSettings:
    from .evaluate.evaluator import named_evaluators
    from .run.settings import RunSettings, concurrency

    given = dict(options, **concurrency(options["n_workers"]))
    given["parameters"] = {} if options["parameters"] is None else options["parameters"]
    given["evaluators"] = named_evaluators(options["evaluators"])  # read once: a generator ends
    return RunSettings(**given)


def _split_options(options: Mapping[str, Any]) -> Any:
    """The options of a solution, and those of ``Experiment``."""
    import inspect

    run = set(inspect.signature(Experiment.__init__).parameters)
    return (
        {name: value for name, value in options.items() if name not in run},
        {name: value for name, value in options.items() if name in run},
    )
