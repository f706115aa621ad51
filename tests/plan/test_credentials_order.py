"""Which source of keys wins, and what is said when one is broken."""

import json
import os
import subprocess
import sys

import pytest

from agentloop_experiment_sdk.errors import CredentialsError
from agentloop_experiment_sdk.plan.config import AgentLoopConfig
from agentloop_experiment_sdk.plan.credentials import find_credentials

CODE = """
import json, sys
from agentloop_experiment_sdk.plan.config import AgentLoopConfig
config = AgentLoopConfig("space", "plan", "cn-test")
try:
    key = config.connection.access().credentials.get_credentials()
    print(json.dumps([key.get_access_key_id(), key.get_access_key_secret(),
                      key.get_security_token()]))
except Exception as error:
    print(json.dumps(str(error)))
print(json.dumps([name for name in sys.modules if name == "alibabacloud_credentials"]))
"""
AGENTLOOP = {"AGENTLOOP_AK": "agentloop-id", "AGENTLOOP_SK": "agentloop-secret"}
ALIBABA = {
    "ALIBABA_CLOUD_ACCESS_KEY_ID": "alibaba-id",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "alibaba-secret",
    "ALIBABA_CLOUD_SECURITY_TOKEN": "alibaba-token",
}
# no question to a metadata server of a cloud machine
NOWHERE = {"ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"}


def profile(name="default", **keys):
    return dict({"name": name, "mode": "AK"}, **keys)


PROFILES = {
    "current": "work",
    "profiles": [
        profile(access_key_id="default-id", access_key_secret="default-secret"),
        profile(
            "work",
            mode="StsToken",
            access_key_id="work-id",
            access_key_secret="work-secret",
            sts_token="work-token",
        ),
    ],
}


def write(path, config):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith(("AGENTLOOP_", "ALIBABA_", "ALIYUN_")):
            monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.fixture
def ask(home, monkeypatch):
    """Finds the keys with this environment and config.json."""

    def ask(environ=None, config=None, given=None, path=None):
        if config is not None:
            write(path or home / ".aliyun" / "config.json", config)
        config = AgentLoopConfig("space", "plan", "cn-test", **(given or {}))
        with monkeypatch.context() as only_now:
            for name, value in (environ or {}).items():
                only_now.setenv(name, value)
            try:
                key = config.connection.access().credentials.get_credentials()
            except CredentialsError as error:
                return str(error)
        return [key.get_access_key_id(), key.get_access_key_secret(), key.get_security_token()]

    return ask


@pytest.fixture
def ask_process(home):
    """The same in a fresh process, as the official library reads the environment at import."""

    def ask(environ=None, config=None):
        if config is not None:
            write(home / ".aliyun" / "config.json", config)
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            env=dict(os.environ, **(environ or {})),
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        answer, library = done.stdout.decode().splitlines()
        ask.library_was_loaded = bool(json.loads(library))
        return json.loads(answer)

    return ask


GIVEN = {"access_key_id": "given-id", "access_key_secret": "given-secret"}


def test_given_keys_win_over_everything(ask):
    environ = dict(AGENTLOOP, **ALIBABA)
    assert ask(environ, PROFILES, GIVEN) == ["given-id", "given-secret", None]
    given = dict(GIVEN, security_token="given-token")
    assert ask(environ, PROFILES, given) == ["given-id", "given-secret", "given-token"]


def test_agentloop_variables_win_over_the_general_ones_without_their_token(ask):
    assert ask(dict(AGENTLOOP, **ALIBABA), PROFILES) == ["agentloop-id", "agentloop-secret", None]


def test_agentloop_variables_have_a_token_of_their_own(ask):
    environ = dict(AGENTLOOP, AGENTLOOP_SECURITY_TOKEN="agentloop-token")
    assert ask(environ) == ["agentloop-id", "agentloop-secret", "agentloop-token"]


def test_general_variables_win_over_the_profile(ask_process):
    assert ask_process(ALIBABA, PROFILES) == ["alibaba-id", "alibaba-secret", "alibaba-token"]
    assert not ask_process.library_was_loaded


def test_a_token_without_its_pair_is_not_used(ask):
    environ = {"ALIBABA_CLOUD_SECURITY_TOKEN": "stray", "AGENTLOOP_SECURITY_TOKEN": "stray"}
    assert ask(environ, PROFILES) == ["default-id", "default-secret", None]


def test_the_default_profile_is_the_one_named_default(ask):
    assert ask({}, PROFILES) == ["default-id", "default-secret", None]


@pytest.mark.parametrize("variable", ["ALIBABA_CLOUD_PROFILE", "ALIYUN_PROFILE"])
def test_a_variable_chooses_another_profile_with_its_token(ask, variable):
    assert ask({variable: "work"}, PROFILES) == ["work-id", "work-secret", "work-token"]


def test_alibaba_cloud_profile_wins_over_aliyun_profile(ask):
    environ = {"ALIBABA_CLOUD_PROFILE": "work", "ALIYUN_PROFILE": "default"}
    assert ask(environ, PROFILES)[0] == "work-id"


def test_a_variable_names_another_file(ask, tmp_path):
    path = tmp_path / "elsewhere.json"
    environ = {"ALIBABA_CLOUD_CREDENTIALS_FILE": str(path)}
    assert ask(environ, PROFILES, path=path)[0] == "default-id"


def test_a_config_saved_with_a_byte_order_mark_is_read(ask):
    assert ask({}, b"\xef\xbb\xbf" + json.dumps(PROFILES).encode())[0] == "default-id"


def test_a_profile_that_does_not_exist_lists_the_others(ask):
    answer = ask({"ALIYUN_PROFILE": "prod"}, PROFILES)
    assert "'prod'" in answer and "'default', 'work'" in answer


def test_no_default_profile_lists_the_others(ask):
    answer = ask({}, {"profiles": PROFILES["profiles"][1:]})
    assert "'default'" in answer and "'work'" in answer


@pytest.mark.parametrize(
    "environ",
    [
        {"AGENTLOOP_AK": "only-this"},
        {"AGENTLOOP_SK": "only-this"},
        {"ALIBABA_CLOUD_ACCESS_KEY_ID": "only-this"},
        {"ALIBABA_CLOUD_ACCESS_KEY_SECRET": "only-this", "AGENTLOOP_AK": "  "},
    ],
)
def test_half_a_pair_is_an_error_and_not_the_next_source(ask, environ):
    answer = ask(environ, PROFILES)
    assert "Half a pair" in answer
    assert "only-this" not in answer


@pytest.mark.parametrize(
    "config",
    [
        b"{broken",
        b'{"profiles": [{"name": "default", "access_key_secret": "leak-me" oops}]}',
        b"\xff\xfe\x00",
        b"[]",
        b'{"profiles": "x"}',
        b"",
    ],
)
def test_a_malformed_config_matters_only_when_its_keys_are_needed(ask, config):
    assert ask(AGENTLOOP, config)[0] == "agentloop-id"
    answer = ask({}, config)
    assert "config.json" in answer
    assert "leak-me" not in answer


def test_half_a_pair_in_a_profile_is_an_error(ask):
    answer = ask({}, {"profiles": [profile(access_key_id="only-this")]})
    assert "Half a pair" in answer and "access_key_secret" in answer


def test_a_temporary_profile_without_its_token_is_an_error(ask):
    keys = profile(mode="StsToken", access_key_id="i", access_key_secret="s")
    assert "no sts_token" in ask({}, {"profiles": [keys]})


def test_a_profile_without_a_mode_is_read_by_what_it_holds(ask):
    keys = {"name": "default", "access_key_id": "i", "access_key_secret": "s"}
    assert ask({}, {"profiles": [keys]}) == ["i", "s", None]
    assert ask({}, {"profiles": [dict(keys, sts_token="t")]}) == ["i", "s", "t"]


def test_the_token_of_a_profile_with_the_mode_ak_is_not_sent(ask):
    keys = profile(access_key_id="i", access_key_secret="s", sts_token="stale")
    assert ask({}, {"profiles": [keys]}) == ["i", "s", None]


def test_other_modes_are_left_to_the_official_library(ask_process):
    # External runs a command that prints keys: the one other mode that needs no network
    program = "import json; print(json.dumps(dict(mode='StsToken', access_key_id='ext-id', "
    program += "access_key_secret='ext-secret', sts_token='ext-token')))"
    command = '{} -c "{}"'.format(sys.executable, program)
    keys = profile(mode="External", process_command=command)
    assert ask_process({}, {"profiles": [keys]}) == ["ext-id", "ext-secret", "ext-token"]
    assert ask_process.library_was_loaded


def test_a_failure_of_the_official_library_names_the_profile(ask_process):
    answer = ask_process({}, {"profiles": [profile(mode="NoSuchMode")]})
    assert "profile default of" in answer and "NoSuchMode" in answer


def test_without_any_key_the_error_lists_what_was_tried(ask_process):
    answer = ask_process()
    for source in (
        "AGENTLOOP_AK",
        "ALIBABA_CLOUD_ACCESS_KEY_ID",
        "config.json (no such file)",
        "alibabacloud_credentials",
    ):
        assert source in answer
    assert len(answer.splitlines()) == 1 and len(answer) < 350 + len(os.path.expanduser("~"))
    assert answer.startswith("No AccessKey was found. Set AGENTLOOP_AK and AGENTLOOP_SK")


def test_what_the_library_tried_is_in_the_debug_log_and_not_in_the_traceback(home, tmp_path):
    program = (
        "import logging, sys; logging.basicConfig(level=sys.argv[1])\n"
        "logging.getLogger('agentloop_experiment_sdk').setLevel(sys.argv[1])\n"
        "from agentloop_experiment_sdk.plan.credentials import find_credentials\n"
        "find_credentials(None, None, None)"
    )
    said = {}
    for level in ("INFO", "DEBUG"):
        done = subprocess.run(
            [sys.executable, "-c", program, level], stderr=subprocess.PIPE, timeout=60
        )
        said[level] = done.stderr.decode()
    assert "ProfileCredentialsProvider" in said["DEBUG"]
    assert "ProfileCredentialsProvider" not in said["INFO"]
    assert len(said["INFO"].splitlines()) < 20


def test_an_empty_default_profile_is_no_source(ask_process):
    # 'aliyun configure' writes such a profile before it knows any key
    answer = ask_process({}, {"profiles": [profile(access_key_id="", access_key_secret="")]})
    assert "its profile default is empty" in answer
    assert "its profile default is empty" in ask_process({}, {"profiles": []})


def test_an_empty_profile_that_was_chosen_is_an_error(ask):
    answer = ask({"ALIYUN_PROFILE": "work"}, {"profiles": [profile("work")]})
    assert "has no keys" in answer and "'work'" in answer


def test_a_chosen_profile_of_an_empty_file_is_an_error(ask):
    assert "no profile at all" in ask({"ALIYUN_PROFILE": "work"}, {"profiles": []})


def test_a_named_file_that_is_missing_is_an_error(ask, tmp_path):
    path = str(tmp_path / "missing.json")
    assert path in ask({"ALIBABA_CLOUD_CREDENTIALS_FILE": path})


def test_the_last_resort_is_the_librarys_own_chain(ask_process, home):
    # an ini file is one of its sources that need no network
    ini = home / ".alibabacloud" / "credentials.ini"
    ini.parent.mkdir(parents=True)
    ini.write_text(
        "[default]\ntype = access_key\naccess_key_id = ini-id\naccess_key_secret = ini-secret\n"
    )
    assert ask_process() == ["ini-id", "ini-secret", None]


def test_the_environment_is_read_when_keys_are_needed(monkeypatch):
    for name in AGENTLOOP:
        monkeypatch.setenv(name, "first")
    assert find_credentials().get_credentials().get_access_key_id() == "first"
    monkeypatch.setenv("AGENTLOOP_AK", "second")
    assert find_credentials().get_credentials().get_access_key_id() == "second"


def test_a_token_alone_is_not_accepted():
    with pytest.raises(CredentialsError, match="belongs to its own pair"):
        find_credentials(security_token="t", environ={})
