"""What keeps a run inside its results directory, also one that somebody else has made.

Names that files give become folders only if they are one name; and nothing is written through a
symbolic link, which could lead to any file of the user. Reading follows links: tools that keep
results in a cache of their own put links in the place of files.
"""

from __future__ import annotations

import os
from typing import Iterable

from ..errors import ResultsDirectoryError
from . import layout

# written in place; every other file is replaced, which replaces a link too
_IN_PLACE = (layout.LOCK_FILE, layout.JOURNAL_FILE, layout.HISTORY_DIR)


def is_one_name(name: str) -> bool:
    """Whether ``name`` can only be an entry of the folder that it is joined to."""
    try:
        os.fsencode(name)
    except UnicodeError:
        return False
    path = os.path.dirname(name) or os.path.splitdrive(name)[0]
    return name not in ("", ".", "..") and "\0" not in name and not path


def check_root(root: str) -> None:
    """Refuse a results directory in which runs would write through a link.

    Raises:
        ResultsDirectoryError: Its lock, journal, history or a task folder is a symbolic link.
    """
    with os.scandir(root) as entries:
        for entry in entries:
            own = entry.name in _IN_PLACE or layout.is_task_folder(entry.name)
            if own and entry.is_symlink():
                raise _is_link(entry.path)


def check_folders(root: str, folders: Iterable[str]) -> None:
    """Refuse folders that lead out of the results directory, before something is written there.

    Args:
        root: The results directory, which may itself be reached through a link.
        folders: Paths below it; each part below ``root`` is looked at.

    Raises:
        ResultsDirectoryError: A part is a symbolic link.
    """
    for folder in folders:
        path = root
        for part in os.path.relpath(folder, root).split(os.sep):
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise _is_link(path)


def _is_link(path: str) -> ResultsDirectoryError:
    return ResultsDirectoryError(
        "{} is a symbolic link, and nothing is written through one: it could lead to any file. "
        "Put a copy in its place, or pass another result_dir.".format(path)
    )
