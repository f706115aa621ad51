"""The error tree: a stable ``code`` each, and a message that says what to do next."""

from __future__ import annotations

from typing import Optional


class ExperimentError(Exception):
    """The root of every error this package raises on purpose.

    Args:
        message: What happened and what to do next.
        code: A stable name for programs; a cloud error carries the code the cloud answered.
        request_id: The id of the cloud request that failed, if there was one.
    """

    code = "ExperimentError"

    def __init__(
        self, message: str, *, code: Optional[str] = None, request_id: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.message = message
        if code:
            self.code = code
        self.request_id = request_id

    def __str__(self) -> str:
        return self.message


class ConfigurationError(ExperimentError, ValueError):
    """An argument or setting is missing, malformed or contradicts another one."""

    code = "InvalidConfiguration"


class CredentialsError(ConfigurationError):
    """No usable pair of access keys was found, or a source of them is broken."""

    code = "InvalidCredentials"


class PlanError(ExperimentError):
    """The experiment plan cannot be run offline as it stands."""

    code = "InvalidPlan"


class DatasetError(ExperimentError):
    """The plan's dataset could not be read."""

    code = "InvalidDataset"


class EmptyDatasetError(DatasetError):
    """The plan, its filters and ``max_rows`` leave no row to run."""

    code = "EmptyDataset"


class CloudError(ExperimentError):
    """AgentLoop or SLS refused a request or could not be reached.

    Attributes:
        status: The HTTP status, or None when no answer arrived.
        retryable: True when the same request may succeed later.
        ambiguous: True when the server may have carried out the request although no answer arrived.
        retry_after: Seconds the server asked to wait, or None.

    ``message``, ``code`` and ``request_id`` are those of ``ExperimentError``.
    """

    code = "CloudError"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        request_id: Optional[str] = None,
        status: Optional[int] = None,
        retryable: bool = False,
        ambiguous: bool = False,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message, code=code, request_id=request_id)
        self.status = status
        self.retryable = retryable
        self.ambiguous = ambiguous
        self.retry_after = retry_after


class EvaluationError(ExperimentError):
    """An evaluator cannot score a row; the row gets no score and the run goes on."""

    code = "CannotEvaluate"


class ResultsDirectoryError(ExperimentError):
    """The results directory cannot be used as asked."""

    code = "InvalidResultsDirectory"


class DirectoryLockedError(ResultsDirectoryError):
    """Another process is running an experiment in this results directory."""

    code = "ResultsDirectoryLocked"


class ResumeError(ResultsDirectoryError):
    """``resume=True`` was asked for, but there is nothing to continue with this identity."""

    code = "CannotResume"


class RunAbortedError(ExperimentError):
    """The run was ended before all rows were done, for the reason in the message."""

    code = "RunAborted"


class TooManyFailuresError(RunAbortedError):
    """``max_failures`` or ``stop_if_first`` ended the run."""

    code = "TooManyFailures"
