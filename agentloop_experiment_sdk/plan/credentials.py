"""Which keys sign the requests: the first source that has a pair.

1. The keys given to ``AgentLoopConfig``.
2. ``AGENTLOOP_AK`` and ``AGENTLOOP_SK``; our addition is ``AGENTLOOP_SECURITY_TOKEN``.
3. ``ALIBABA_CLOUD_ACCESS_KEY_ID``, ``ALIBABA_CLOUD_ACCESS_KEY_SECRET`` and
   ``ALIBABA_CLOUD_SECURITY_TOKEN``.
4. A profile of ``~/.aliyun/config.json``: ``default``, or the one that ``ALIBABA_CLOUD_PROFILE``
   or ``ALIYUN_PROFILE`` names; ``ALIBABA_CLOUD_CREDENTIALS_FILE`` names another file.
5. The default chain of ``alibabacloud_credentials`` (OIDC, its own files, an ECS RAM role, …).

A token is only used with the pair of its own source. The environment is read when the keys are
needed, not when this module is imported.
"""

from __future__ import annotations

import os
from typing import List, Mapping, Optional, Tuple

from ..cloud.access import AccessKey, CredentialsProvider, access_key
from ..errors import CredentialsError

_FILE_VARIABLE = "ALIBABA_CLOUD_CREDENTIALS_FILE"
_PROFILE_VARIABLES = ("ALIBABA_CLOUD_PROFILE", "ALIYUN_PROFILE")
_KEY_VARIABLES = (
    ("AGENTLOOP_AK", "AGENTLOOP_SK", "AGENTLOOP_SECURITY_TOKEN"),
    (
        "ALIBABA_CLOUD_ACCESS_KEY_ID",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        "ALIBABA_CLOUD_SECURITY_TOKEN",
    ),
)


def find_credentials(
    access_key_id: Optional[str] = None,
    access_key_secret: Optional[str] = None,
    security_token: Optional[str] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> CredentialsProvider:
    """The provider of the first source that has keys; ask it again before each signature.

    Args:
        access_key_id: The key given by the user; it wins over every other source.
        access_key_secret: Its secret.
        security_token: Its STS token, if it is a temporary key.
        environ: The environment; None is the process's own.

    Raises:
        CredentialsError: A source has half a pair, the profile does not exist, the profile file
            cannot be read, or no source has keys; the message says which and what to do.
    """
    given = _given(access_key_id, access_key_secret, security_token)
    if given is not None:
        return given
    environ = os.environ if environ is None else environ
    for names in _KEY_VARIABLES:
        found = _from_environment(environ, names)
        if found is not None:
            return found
    return _from_profile_or_library(environ)


def _given(
    key_id: Optional[str], secret: Optional[str], token: Optional[str]
) -> Optional[AccessKey]:
    names = ("access_key_id", "access_key_secret", "security_token")
    for name, value in zip(names, (key_id, secret, token)):
        if value is not None and not isinstance(value, str):
            raise CredentialsError("{} must be text.".format(name))
    if token and not (key_id or secret):
        raise CredentialsError(
            "security_token was given without access_key_id and access_key_secret. A token "
            "belongs to its own pair of keys; give all three."
        )
    return access_key((key_id, secret, token), names, "the keys given to AgentLoopConfig")


def _from_environment(
    environ: Mapping[str, str], names: Tuple[str, str, str]
) -> Optional[AccessKey]:
    values = (environ.get(names[0]), environ.get(names[1]), environ.get(names[2]))
    return access_key(values, names, "the environment variables {} and {}".format(*names))


def _from_profile_or_library(environ: Mapping[str, str]) -> CredentialsProvider:
    from .library import LibraryChain
    from .profiles import ProfileFile

    named_file = environ.get(_FILE_VARIABLE, "").strip()
    named_profile = _first(environ, _PROFILE_VARIABLES)
    path = named_file or os.path.join("~", ".aliyun", "config.json")
    profiles = ProfileFile(os.path.expanduser(path), named_profile or "default")
    tried = _tried_variables()
    if not profiles.exists():
        if named_file:
            raise CredentialsError(
                "{} names {}, which is not a file.".format(_FILE_VARIABLE, profiles.path)
            )
        tried.append("{} (no such file)".format(profiles.path))
    elif profiles.has_keys(required=bool(named_profile)):
        return profiles
    else:
        tried.append("{} (its profile {} is empty)".format(profiles.path, profiles.name))
    chain = LibraryChain(tried)
    chain.get_credentials()
    return chain


def _first(environ: Mapping[str, str], names: Tuple[str, ...]) -> str:
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return value
    return ""


def _tried_variables() -> List[str]:
    """The sources that come before the profile, without the one that the message begins with."""
    return ["the config"] + [names[0] for names in _KEY_VARIABLES[1:]]
