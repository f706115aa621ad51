"""Keys that the official library ``alibabacloud_credentials`` finds; imported only when asked."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, Callable, Iterator, Sequence

from ..cloud.access import AccessKey, Credentials, access_key, keys_of
from ..errors import CredentialsError
from ..lines import excerpt

logger = logging.getLogger(__name__)

_LIBRARY_LOGGERS = ("credentials", "apscheduler.scheduler")
_LONGEST_REASON = 600


class LibraryCredentials:
    """A provider of the library, made at its first use, its errors translated.

    Args:
        make: Makes the provider.
        source: What it asks, in words for an error message.
        provider_name: As the library names it.
    """

    def __init__(self, make: Callable[[], Any], source: str, provider_name: str) -> None:
        self._make = make
        self._provider: Any = None
        self._provider_name = provider_name
        self.source = source

    def get_credentials(self) -> Credentials:
        """The present keys.

        Raises:
            CredentialsError: The library gave none.
        """
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
        """The provider's name."""
        return self._provider_name


class LibraryChain(LibraryCredentials):
    """The last resort: the default chain of ``alibabacloud_credentials``.

    Args:
        tried: The sources that had no keys, for the error message.
    """

    def __init__(self, tried: Sequence[str]) -> None:
        source = "the default chain of alibabacloud_credentials"
        super().__init__(_default_chain, source, "default")
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


def library_profile(path: str, name: str, source: str) -> LibraryCredentials:
    """A profile of a ``config.json`` in one of the modes that only the library knows."""

    def make() -> Any:
        from alibabacloud_credentials.provider import CLIProfileCredentialsProvider

        return CLIProfileCredentialsProvider(profile_name=name, profile_file=path)

    return LibraryCredentials(make, source, "cli_profile")


def _default_chain() -> Any:
    from alibabacloud_credentials.provider import DefaultCredentialsProvider

    return DefaultCredentialsProvider()


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


def _snapshot(found: Any, source: str) -> AccessKey:
    """The keys of one moment, to be kept: what the library found may rotate."""
    key = access_key(keys_of(found), ("the key id", "the key secret", "the token"), source)
    if key is None:
        raise CredentialsError("{} answered without keys.".format(source))
    return key


def _reason(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    return excerpt(text, _LONGEST_REASON).rstrip(".")
