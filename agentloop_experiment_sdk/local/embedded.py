"""LocalAgentLoop: AgentLoop and SLS inside this process, on one loopback port."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Counter,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from ..arguments import check_count, check_flags, unusable
from .arguments import check_seconds, check_texts, ids_of, mappings_of
from .control import record_of
from .dataset_operations import load_rows
from .datasets import Datasets, Rows, read_rows
from .evaluations import add_scores
from .faults import Faults
from .pipelines import NAME, add_pipeline
from .plans import check_experiment_type, known_plan
from .platform import RUN, SPACE, Platform, Settings
from .server import LoopServer
from .service import Service
from .signing import AccessKey, Verifier
from .sls_resources import RESULTS, TRACES
from .spaces import add_space
from .store import Store

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Endpoints:
    """What a client needs to reach a LocalAgentLoop.

    Attributes:
        agentloop_endpoint, sls_endpoint: Where the two protocols are spoken, as URLs.
        agent_space, region_id, project: The names to use there.
        access_key_id, access_key_secret: The key that is accepted.
    """

    agentloop_endpoint: str
    sls_endpoint: str
    agent_space: str
    region_id: str
    project: str
    access_key_id: str
    access_key_secret: str


class LocalAgentLoop:
    """An AgentLoop without a cloud: the unmodified official clients work against it.

    Use it as a context manager. It listens on 127.0.0.1 only, checks every signature, and keeps
    its data in SQLite. An exception inside one of its handlers is raised again when the ``with``
    block ends (or by :meth:`check`), so that the test which caused it fails.

    Args:
        path: A file for the data, which survives a restart (the datasets of each agent space
            stand beside it in ``<path>.<space>.datasets``); None keeps everything in memory.
        port: The port to listen on; 0 takes any free one.
        agent_space: The name of the agent space it starts with.
        project: The SLS project of that agent space.
        region_id: The region it claims to be.
        access_key_id: The key it accepts.
        access_key_secret: That key's secret.
        writable_sql: Let ExecuteQuery insert, update and delete rows.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    def __init__(
        self,
        path: Union[None, str, os.PathLike[str]] = None,
        *,
        port: int = 0,
        agent_space: str = "local",
        project: str = "local-project",
        region_id: str = "cn-local",
        access_key_id: str = "local-ak",
        access_key_secret: str = "local-sk",
        writable_sql: bool = False,
    ) -> None:
        check_count("port", port, 0, 65535)
        check_flags(writable_sql=writable_sql)
        check_texts(agent_space=agent_space, project=project, region_id=region_id)
        self.faults = Faults()
        self._path = None if path is None else _file(path)
        self._asked_port = port
        self._port = 0
        self._writable = writable_sql
        self._settings = Settings(agent_space, project, region_id, access_key_id, access_key_secret)
        self._verifier = Verifier()
        self.set_access_key(access_key_id, access_key_secret)
        self._service: Optional[Service] = None
        self._server: Optional[LoopServer] = None

    def __enter__(self) -> LocalAgentLoop:
        return self.start()

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self.close()
        if kind is None:
            self.check()

    def start(self) -> LocalAgentLoop:
        """Open the data and begin to listen; returns itself.

        Raises:
            RuntimeError: It is running already.
            OSError: The port cannot be bound.
        """
        if self._server is not None:
            raise RuntimeError("LocalAgentLoop is running already.")
        store = Store(self._path)
        datasets = Datasets(store, self._path, self._writable)
        platform = Platform(self._settings, store, datasets, self.faults)
        if store.get(SPACE, "", self._settings.agent_space) is None:
            add_space(platform, self._settings.agent_space, self._settings.project)
        self._service = Service(platform, self._verifier)
        server = LoopServer(self._service.handle)
        try:
            self._port = server.start(self._asked_port)
        except BaseException:
            _close_data(platform)
            raise
        self._server = server
        return self

    def close(self) -> None:
        """Stop listening, drop all connections and close the data. May be called again."""
        server, self._server = self._server, None
        if server is None or self._service is None:
            return
        server.close()
        _close_data(self._service.platform)

    def check(self) -> None:
        """Raise the first exception that a request handler let out, if any.

        Raises:
            RuntimeError: Caused by that exception.
        """
        crash = None if self._service is None else self._service.first_crash()
        if crash is not None:
            raise RuntimeError(
                "a request handler of LocalAgentLoop crashed: {!r}".format(crash)
            ) from crash

    @property
    def endpoints(self) -> Endpoints:
        """Where it listens, and the names and keys to use there.

        Raises:
            RuntimeError: It is not running.
        """
        self._running()
        url = "http://127.0.0.1:{}".format(self._port)
        settings = self._settings
        return Endpoints(
            agentloop_endpoint=url,
            sls_endpoint=url,
            agent_space=settings.agent_space,
            region_id=settings.region_id,
            project=settings.project,
            access_key_id=settings.access_key_id,
            access_key_secret=settings.access_key_secret,
        )

    @property
    def requests(self) -> Counter[str]:
        """How many requests have arrived, by action name (``"PutLogs"``); a copy."""
        return self._running().counts

    def wait_for(self, action: str, count: int = 1, timeout: float = 60.0) -> bool:
        """Wait until ``count`` requests of ``action`` have arrived; False after ``timeout`` s."""
        check_texts(action=action)
        check_count("count", count, 0)
        check_seconds("timeout", timeout)
        return self._running().wait_for(action, count, timeout)

    def set_access_key(
        self, key_id: str, secret: str, security_token: Optional[str] = None
    ) -> None:
        """Accept ``key_id`` with ``secret`` from now on; with ``security_token``, only with it."""
        check_texts(access_key_id=key_id, access_key_secret=secret)
        if security_token is not None:
            check_texts(security_token=security_token)
        self._verifier.keys[key_id] = AccessKey(key_id, secret, security_token)

    def revoke_access_key(self, key_id: str) -> None:
        """Accept ``key_id`` no more."""
        check_texts(key_id=key_id)
        self._verifier.keys.pop(key_id, None)

    def load_dataset(self, rows: Rows, name: str = "dataset", *, replace: bool = False) -> str:
        """Make a dataset of rows and return its name.

        Args:
            rows: A list of dicts, or a ``.jsonl`` or ``.csv`` file.
            name: The dataset's name.
            replace: Put these rows in the place of a dataset of that name.

        Raises:
            ConfigurationError: The file's content, a row or an argument cannot be used.
            OSError: The file cannot be read.
            ServiceError: There is a dataset of that name, or SQLite refuses a column's name.
        """
        check_texts(name=name)
        check_flags(replace=replace)
        found = read_rows(rows)
        return self._call(load_rows, self._settings.agent_space, name, found, replace)

    def create_plan(
        self,
        dataset: str = "dataset",
        name: str = "local plan",
        *,
        experiment_type: str = "offline",
        selected_item_ids: Optional[Sequence[str]] = None,
        query_sql: str = "",
        pipeline_name: str = "",
        evaluators: Optional[Sequence[Mapping[str, Any]]] = None,
    ) -> str:
        """Make an experiment plan over a dataset and return its id.

        Equal arguments give the same plan and id, also in another process: a script that is run
        again goes on with its experiment.

        Args:
            dataset: The dataset's name; it need not exist.
            name: The plan's name.
            experiment_type: ``offline`` or ``online``.
            selected_item_ids: Ids of the rows to run; None for all.
            query_sql: A filter over the rows such as ``level > 2``.
            pipeline_name: The pipeline that processes traces; empty for none.
            evaluators: Evaluators of the platform.

        Raises:
            ConfigurationError: An argument cannot be used.
        """
        check_texts(dataset=dataset, name=name)
        check_texts(query_sql=query_sql, pipeline_name=pipeline_name, may_be_empty=True)
        check_experiment_type(experiment_type)
        ids = ids_of("selected_item_ids", selected_item_ids)
        fields: Dict[str, Any] = {
            "datasetId": dataset,
            "querySql": query_sql,
            "pipelineName": pipeline_name,
            "evaluators": mappings_of("evaluators", () if evaluators is None else evaluators),
        }
        if ids is not None:
            fields["selectedItemIds"] = ids
        return self._call(known_plan, self._settings.agent_space, name, experiment_type, fields)

    def create_pipeline(
        self,
        name: str,
        *,
        query: str = "*",
        nodes: Optional[Sequence[Mapping[str, Any]]] = None,
        logstore: str = TRACES,
    ) -> str:
        """Make a pipeline over a logstore and return its name.

        Args:
            name: 3 to 63 lower-case letters, digits and hyphens.
            query: The SLS query that finds the source rows.
            nodes: Nodes such as ``{"id": "n", "type": "project", "parameters": {new: old}}``.
            logstore: The logstore to read.

        Raises:
            ConfigurationError: An argument cannot be used.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise unusable("name", name, "3 to 63 lower-case letters, digits and hyphens")
        check_texts(query=query, logstore=logstore)
        found = mappings_of("nodes", () if nodes is None else nodes)
        source = {"project": self._settings.project, "logstore": logstore, "query": query}
        fields = {
            "source": {"type": "logstore", "logstore": source},
            "pipeline": {"nodes": [dict(node) for node in found]},
            "sink": {"type": "dataset"},
            "executePolicy": {"mode": "RunOnce"},
        }
        self._call(add_pipeline, self._settings.agent_space, name, fields)
        return name

    def rows(
        self, record_id: Optional[str] = None, logstore: str = RESULTS
    ) -> List[Dict[str, str]]:
        """The rows of ``logstore`` in the order they arrived; None as ``record_id`` gives all."""
        check_texts(logstore=logstore)
        if record_id is not None:
            check_texts(record_id=record_id)
        equal = [] if record_id is None else [("experiment_id", record_id)]

        def read(platform: Platform) -> List[Dict[str, str]]:
            return list(platform.store.logs(self._settings.project, logstore, equal=equal))

        return self._call(read)

    def records(self) -> List[str]:
        """The ids of all records, oldest first."""
        return self._call(lambda platform: [run["recordId"] for run in platform.store.list(RUN)])

    def record(self, record_id: str) -> Dict[str, Any]:
        """The record ``record_id`` as GetExperimentRun answers.

        Raises:
            KeyError: There is no such record.
        """
        check_texts(record_id=record_id)
        service = self._running()
        return self._call(lambda platform: record_of(service, record_id))

    def updates(self, record_id: str) -> List[Dict[str, Any]]:
        """The bodies of UpdateExperimentRun for the record ``record_id``, in order."""
        check_texts(record_id=record_id)
        return self._call(lambda platform: platform.store.updates(record_id))

    def put_logs(self, logstore: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Store rows as if they had arrived by PutLogs; returns their number.

        Raises:
            ConfigurationError: An argument cannot be used.
            ServiceError: There is no such logstore.
        """
        check_texts(logstore=logstore)
        service, found = self._running(), mappings_of("rows", rows)
        return self._call(lambda platform: service.put_logs(logstore, found))

    def score(
        self, record_id: str, rows: Sequence[Mapping[str, Any]], *, status: str = "completed"
    ) -> str:
        """Write scores of a record as the platform's evaluators do; returns the task's id.

        Args:
            record_id: The record, whose ``evaluationTaskId`` is set.
            rows: Rows of logstore evaluation_detail; ids and times are filled in.
            status: The status of the evaluation task, such as ``running``.

        Raises:
            ConfigurationError: An argument cannot be used.
            KeyError: There is no such record.
        """
        check_texts(record_id=record_id, status=status)
        return self._call(add_scores, record_id, mappings_of("rows", rows), status)

    def _running(self) -> Service:
        return self._live()[1]

    def _live(self) -> Tuple[LoopServer, Service]:
        server, service = self._server, self._service
        if server is None or service is None:
            raise RuntimeError(
                "LocalAgentLoop is not running; use it inside its with block or call start()."
            )
        return server, service

    def _call(self, work: Callable[..., _Result], *args: Any) -> _Result:
        """Run ``work(platform, *args)`` on the server's thread, where the data belongs."""
        return self._live()[0].call(work, self._running().platform, *args)


def _file(path: Any) -> str:
    name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if not name or "\0" in name:
        raise unusable("path", path, "a file's path, or None to keep everything in memory")
    return name


def _close_data(platform: Platform) -> None:
    platform.datasets.close()
    platform.store.close()
