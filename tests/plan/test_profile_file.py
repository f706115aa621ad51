"""A profile that changes while a run is going on."""

import json
import logging
import os
import sys
import threading

import pytest

from agentloop_experiment_sdk.errors import CredentialsError
from agentloop_experiment_sdk.plan import library
from agentloop_experiment_sdk.plan.credentials import find_credentials
from agentloop_experiment_sdk.plan.library import LibraryChain
from agentloop_experiment_sdk.plan.profiles import ProfileFile


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.json"


def write(file, **keys):
    keys = dict({"name": "default", "mode": "AK"}, **keys)
    file.write_text(json.dumps({"profiles": [keys]}))
    # the clock of a file system may be too coarse to show two writes in a row
    write.at = getattr(write, "at", 0) + 1
    os.utime(str(file), (write.at, write.at))


def token_of(profiles):
    return profiles.get_credentials().get_security_token()


def test_a_new_token_is_read_when_the_file_changes(file):
    keys = {"mode": "StsToken", "access_key_id": "i", "access_key_secret": "s"}
    write(file, sts_token="first", **keys)
    profiles = ProfileFile(str(file), "default")
    assert token_of(profiles) == token_of(profiles) == "first"
    write(file, sts_token="other", **keys)
    assert token_of(profiles) == "other"


def test_an_unchanged_file_is_not_parsed_again(file):
    write(file, access_key_id="i", access_key_secret="s")
    profiles = ProfileFile(str(file), "default")
    assert profiles.get_credentials() is profiles.get_credentials()


@pytest.mark.parametrize("damage", ["torn", "gone"])
def test_keys_at_hand_survive_a_rewrite_in_progress(file, damage, caplog):
    write(file, access_key_id="i", access_key_secret="s")
    profiles = ProfileFile(str(file), "default")
    profiles.get_credentials()
    with caplog.at_level(logging.DEBUG):
        if damage == "torn":
            file.write_text('{"profiles": [')
        else:
            file.unlink()
        assert profiles.get_credentials().get_access_key_id() == "i"
    assert "Keeping the keys" in caplog.text
    write(file, access_key_id="new", access_key_secret="s")
    assert profiles.get_credentials().get_access_key_id() == "new"


def test_a_file_that_was_never_readable_is_an_error(file):
    with pytest.raises(CredentialsError, match="cannot be read"):
        ProfileFile(str(file), "default").get_credentials()


def test_a_directory_in_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(CredentialsError, match="cannot be read"):
        ProfileFile(str(tmp_path), "default").get_credentials()


def test_a_profile_that_lost_its_keys_is_an_error(file):
    write(file, access_key_id="i", access_key_secret="s")
    profiles = ProfileFile(str(file), "default")
    assert profiles.has_keys(required=True)
    write(file)
    with pytest.raises(CredentialsError, match="no keys any more"):
        profiles.get_credentials()


def test_providers_carry_the_names_the_official_library_uses(file):
    assert ProfileFile(str(file), "x").get_provider_name() == "cli_profile"
    assert LibraryChain([]).get_provider_name() == "default"
    write(file, mode="EcsRamRole")
    provider = ProfileFile(str(file), "default")._load().provider
    assert provider.get_provider_name() == "cli_profile"


def test_a_library_that_answers_without_keys_is_an_error(monkeypatch, caplog):
    class Empty:
        def get_credentials(self):
            return self

        def get_access_key_id(self):
            return None

        get_access_key_secret = get_security_token = get_access_key_id

    monkeypatch.setattr(library, "_default_chain", Empty)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialsError, match="No AccessKey was found"):
        LibraryChain(["nothing"]).get_credentials()
    assert "answered without keys" in caplog.text


def test_what_the_library_logs_meanwhile_is_dropped_but_not_that_of_other_threads(
    monkeypatch, caplog
):
    chatty = logging.getLogger("credentials")

    def chain():
        chatty.error("here, with a traceback")
        other = threading.Thread(target=chatty.error, args=("elsewhere",))
        other.start()
        other.join()
        raise OSError("no keys")

    monkeypatch.setattr(library, "_default_chain", chain)
    with pytest.raises(CredentialsError, match="No AccessKey was found"):
        LibraryChain(["nothing"]).get_credentials()
    chatty.error("afterwards")
    assert [r.getMessage() for r in caplog.records if r.name == "credentials"] == [
        "elsewhere",
        "afterwards",
    ]


def external(file):
    # External runs a command that prints keys: the one mode of the library without a network
    program = "import json; print(json.dumps(dict(mode='AK', access_key_id='ext-id', "
    program += "access_key_secret='ext-secret')))"
    command = '{} -c "{}"'.format(sys.executable, program)
    write(file, mode="External", process_command=command)


def test_other_modes_are_asked_of_the_official_library_each_time(file):
    external(file)
    profiles = ProfileFile(str(file), "default")
    assert profiles.has_keys(required=True)
    for _ in range(2):
        key = profiles.get_credentials()
        assert (key.get_access_key_id(), key.get_access_key_secret()) == ("ext-id", "ext-secret")
        assert key.get_security_token() is None


def test_an_error_of_the_library_names_the_profile_and_the_cause(file):
    write(file, mode="NoSuchMode")
    with pytest.raises(CredentialsError, match="profile default of .*NoSuchMode"):
        ProfileFile(str(file), "default").get_credentials()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all files")
def test_a_file_without_read_permission_is_an_error(file):
    write(file, access_key_id="i", access_key_secret="s")
    file.chmod(0)
    with pytest.raises(CredentialsError, match="cannot be read"):
        ProfileFile(str(file), "default").get_credentials()


class LibraryKeys:
    """What the library's chain answers on a machine that has keys."""

    def get_credentials(self):
        from alibabacloud_credentials.provider import StaticSTSCredentialsProvider

        return StaticSTSCredentialsProvider(
            access_key_id="chain-id", access_key_secret="chain-secret", security_token="chain-token"
        ).get_credentials()


def test_the_librarys_chain_is_the_last_resort(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setattr(library, "_default_chain", LibraryKeys)
    provider = find_credentials(environ={})
    assert provider.get_credentials().get_access_key_id() == "chain-id"
    assert token_of(provider) == "chain-token"


def test_the_real_chain_is_that_of_the_library():
    from alibabacloud_credentials.provider import DefaultCredentialsProvider

    assert isinstance(library._default_chain(), DefaultCredentialsProvider)
