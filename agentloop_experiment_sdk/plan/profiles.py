"""Keys from a profile of the Alibaba Cloud CLI's ``config.json``.

Profiles of the modes ``AK`` and ``StsToken`` are read here; every other mode (``RamRoleArn``,
``EcsRamRole``, ``OIDC``, ``CloudSSO``, …) is left to the official library.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cloud.access import Credentials, CredentialsProvider, access_key
from ..errors import CredentialsError
from .library import library_profile

logger = logging.getLogger(__name__)

_DIRECT_MODES = ("AK", "StsToken")
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
            return library_profile(self.path, self.name, self.source)
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
