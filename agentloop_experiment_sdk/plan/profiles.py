"""Keys from a profile of the Alibaba Cloud CLI's ``config.json``, or from the official library.

Profiles of the modes ``AK`` and ``StsToken`` are read here; every other mode (``RamRoleArn``,
``EcsRamRole``, ``OIDC``, ``CloudSSO``, …) is left to ``alibabacloud_credentials``, which is
imported only then.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ..cloud.access import AccessKey, Credentials, CredentialsProvider, access_key, keys_of
from ..errors import CredentialsError
from ..lines import excerpt

logger = logging.getLogger(__name__)

_DIRECT_MODES = ("AK", "StsToken")
_LONGEST_REASON = 600
_LIBRARY_LOGGERS = ("credentials", "apscheduler.scheduler")
_Signature = Tuple[int, int, int]


class _Loaded(NamedTuple):
    """What the file said, and the version of the file that said it."""

    signature: _Signature
    provider: Optional[CredentialsProvider]


class ProfileFile:
    """One profile of a ``config.json``, read again whenever the file changes.

    Args:
        path: The file.
        name: The profile's name.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._loaded: Optional[_Loaded] = None

    @property
    def source(self) -> str:
        """The profile and file in words."""
        return "profile {} of {}".format(self.name, self.path)

    def exists(self) -> bool:
        """Whether there is such a file."""
        return os.path.isfile(self.path)

    def has_keys(self, required: bool) -> bool:
        """Whether the profile holds keys or names a way to get them.

        Raises:
            CredentialsError: The file is broken, has other profiles only, or ``required`` is true
                and the profile is empty.
        """
        provider = self._load().provider
        if provider is None and required:
            raise CredentialsError("{} has no keys. Set them there.".format(self._sentence()))
        return provider is not None

    def get_credentials(self) -> Credentials:
        """The profile's present keys."""
        provider = self._load().provider
        if provider is None:
            raise CredentialsError("{} has no keys any more.".format(self._sentence()))
        return provider.get_credentials()

    def get_provider_name(self) -> str:
        """``cli_profile``, as the official library names it."""
        return "cli_profile"

    def _sentence(self) -> str:
        return "Profile {!r} of {}".format(self.name, self.path)

    def _load(self) -> _Loaded:
        """The parsed profile; a file caught in the middle of a rewrite keeps the keys we have."""
        loaded = self._loaded
        try:
            signature = _signature(self.path)
            if loaded is None or loaded.signature != signature:
                loaded = _Loaded(signature, self._read())
                self._loaded = loaded
        except CredentialsError as error:
            if loaded is None:
                raise
            logger.debug("Keeping the keys at hand. %s", error)
        return loaded

    def _read(self) -> Optional[CredentialsProvider]:
        profile = _find_profile(_read_json(self.path), self.name, self.path)
        if profile is None:
            return None
        token = profile.get("sts_token")
        mode = profile.get("mode") or ("StsToken" if token else "AK")
        if mode not in _DIRECT_MODES:
            return _LibraryCredentials(self._library_provider, self.source)
        names = ("access_key_id", "access_key_secret", "sts_token")
        values = (profile.get(names[0]), profile.get(names[1]), token if mode != "AK" else None)
        key = access_key(values, names, self.source)
        if key is not None and mode == "StsToken" and not key.security_token:
            raise CredentialsError(
                "{} has the mode StsToken but no sts_token. Get a new token.".format(
                    self._sentence()
                )
            )
        return key

    def _library_provider(self) -> Any:
        from alibabacloud_credentials.provider import CLIProfileCredentialsProvider

        return CLIProfileCredentialsProvider(profile_name=self.name, profile_file=self.path)


class _LibraryCredentials:
    """A provider of ``alibabacloud_credentials``, made at its first use, its errors translated."""

    def __init__(self, make: Callable[[], Any], source: str) -> None:
        self._make = make
        self._provider: Any = None
        self.source = source

    def get_credentials(self) -> Credentials:
        try:
            with _library_silent():
                if self._provider is None:
                    self._provider = self._make()
                return _snapshot(self._provider.get_credentials(), self.source)
        except CredentialsError:
            raise
        except Exception as error:
            raise CredentialsError(
                "The official credentials library gave no keys for {}: {}.".format(
                    self.source, _reason(error)
                )
            ) from error

    def get_provider_name(self) -> str:
        return "cli_profile"


class LibraryChain(_LibraryCredentials):
    """The last resort: the default chain of ``alibabacloud_credentials``.

    Args:
        tried: The sources that had no keys, for the error message.
    """

    def __init__(self, tried: Sequence[str]) -> None:
        super().__init__(_default_chain, "the default chain of alibabacloud_credentials")
        self._tried = tuple(tried)

    def get_credentials(self) -> Credentials:
        """The keys that the chain finds now.

        Raises:
            CredentialsError: No source has keys. What each of the library's sources said is logged
                at DEBUG: it is long, and seldom what went wrong.
        """
        try:
            return super().get_credentials()
        except CredentialsError as error:
            logger.debug("%s", error)
            raise CredentialsError(
                "No AccessKey was found. Set AGENTLOOP_AK and AGENTLOOP_SK, or use LocalAgentLoop, "
                "which needs no account. Looked at: {}, the default chain of "
                "alibabacloud_credentials (details: log level DEBUG).".format(
                    ", ".join(self._tried)
                )
            ) from None

    def get_provider_name(self) -> str:
        """``default``, as the official library names it."""
        return "default"


@contextlib.contextmanager
def _library_silent() -> Iterator[None]:
    """Drop what the library logs in this thread meanwhile.

    For each source without keys it prints a traceback, several times over; the error that is
    raised here says the same in words.
    """
    caller = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != caller

    loggers = [logging.getLogger(name) for name in _LIBRARY_LOGGERS]
    for chatty in loggers:
        chatty.addFilter(elsewhere)
    try:
        yield
    finally:
        for chatty in loggers:
            chatty.removeFilter(elsewhere)


def _default_chain() -> Any:
    from alibabacloud_credentials.provider import DefaultCredentialsProvider

    return DefaultCredentialsProvider()


def _snapshot(found: Any, source: str) -> AccessKey:
    """The keys of one moment, to be kept: what the library found may rotate."""
    key = access_key(keys_of(found), ("the key id", "the key secret", "the token"), source)
    if key is None:
        raise CredentialsError("{} answered without keys.".format(source))
    return key


def _signature(path: str) -> _Signature:
    try:
        status = os.stat(path)
    except OSError as error:
        raise CredentialsError(
            "The profile file {} cannot be read: {}.".format(path, error.strerror or error)
        ) from error
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _read_json(path: str) -> Mapping[str, Any]:
    try:
        # PowerShell and Notepad save with a byte order mark
        with open(path, encoding="utf-8-sig") as file:
            content = json.load(file)
    except OSError as error:
        raise CredentialsError(
            "The profile file {} cannot be read: {}. Give its owner's process access, or set "
            "AGENTLOOP_AK and AGENTLOOP_SK.".format(path, error.strerror or error)
        ) from error
    except ValueError as error:
        # the parser's own text may quote the file, which holds secrets: say only where
        raise CredentialsError(
            "The profile file {} is not valid JSON{}. Repair it with 'aliyun configure', or set "
            "AGENTLOOP_AK and AGENTLOOP_SK.".format(path, _position(error))
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("profiles", []), list):
        raise CredentialsError(
            "The profile file {} must hold a JSON object with a list 'profiles'.".format(path)
        )
    return content


def _position(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return " (line {}, column {})".format(error.lineno, error.colno)
    return " in UTF-8"


def _find_profile(content: Mapping[str, Any], name: str, path: str) -> Optional[Dict[str, Any]]:
    profiles = [item for item in content.get("profiles") or [] if isinstance(item, dict)]
    for profile in profiles:
        if profile.get("name") == name:
            return profile
    if not profiles and name == "default":
        return None
    raise CredentialsError(
        "{} has no profile {!r}; it has {}. Choose one with ALIBABA_CLOUD_PROFILE.".format(
            path, name, _names(profiles)
        )
    )


def _names(profiles: List[Dict[str, Any]]) -> str:
    return ", ".join(repr(str(item.get("name"))) for item in profiles) or "no profile at all"


def _reason(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    return excerpt(text, _LONGEST_REASON).rstrip(".")
