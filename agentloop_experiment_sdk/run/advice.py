"""What a person is told when a run did not go through: what happened, what is kept, what to do."""

from __future__ import annotations

import shlex

from ..errors import ResultsDirectoryError
from ..results.directory import ResultsDirectory


def undelivered_message(directory: ResultsDirectory, count: int) -> str:
    """What to log when rows were not delivered."""
    return (
        "{} rows were not delivered to SLS. They are kept in {}; send them later with: "
        "agentloop-experiment deliver {}".format(count, directory.path, shlex.quote(directory.path))
    )


def unwritable(path: str, error: BaseException) -> ResultsDirectoryError:
    """The error of a run whose results directory cannot be written."""
    failure = ResultsDirectoryError(
        "The results directory {} cannot be written: {}. Make room or mend its permissions, then "
        "run again: rows that are done are kept.".format(path, error),
        code="ResultsDirectoryNotWritable",
    )
    failure.__cause__ = error
    return failure
