"""Settings that cannot work are told before anything is sent."""

import subprocess
import sys

import pytest

from agentloop_experiment_sdk.cloud.access import AccessKey
from agentloop_experiment_sdk.errors import ConfigurationError, CredentialsError
from agentloop_experiment_sdk.plan.config import AgentLoopConfig
from agentloop_experiment_sdk.plan.connection import Connection


def config(**changes):
    values = {
        "agent_space": "space",
        "experiment_plan_id": "plan-1",
        "region_id": "cn-hangzhou",
        "access_key_id": "the-key-id",
        "access_key_secret": "the-secret",
        "agentloop_endpoint": "http://127.0.0.1:9",
    }
    values.update(changes)
    return AgentLoopConfig(**values)


BAD = [
    ("agent_space", ""),
    ("agent_space", "  "),
    ("agent_space", "."),
    ("agent_space", ".."),
    ("agent_space", "a/b"),
    ("agent_space", "a\\b"),
    ("agent_space", " a"),
    ("agent_space", "a\nb"),
    ("agent_space", None),
    ("agent_space", 7),
    ("experiment_plan_id", ""),
    ("experiment_plan_id", ".."),
    ("experiment_plan_id", "x/y"),
    ("experiment_plan_id", None),
    ("region_id", ""),
    ("region_id", "cn hangzhou"),
    ("region_id", "cn-hangzhou.evil.example"),
    ("region_id", "cn-"),
    ("region_id", None),
    ("max_rows", 0),
    ("max_rows", -1),
    ("max_rows", True),
    ("max_rows", "10"),
    ("max_rows", 1.5),
    ("max_rows", None),
    ("project", 3),
    ("project", "a.b/c"),
    ("ground_truth_field", 3),
    ("experiment_name", ["x"]),
    ("agentloop_endpoint", "ftp://example.com"),
    ("agentloop_endpoint", "host:port"),
    ("sls_endpoint", "https://"),
    ("sls_endpoint", 9),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_named_at_construction(name, value):
    with pytest.raises(ConfigurationError, match=name):
        config(**{name: value})


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_assigned_later_is_named_before_any_request(name, value):
    settings = config()
    setattr(settings, name, value)
    with pytest.raises(ConfigurationError, match=name):
        settings.resolve_experiment_plan()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agent_space", "\u6211\u7684 space"),
        ("region_id", "ap-southeast-1"),
        ("project", "my-project"),
        ("project", ""),
        ("ground_truth_field", ""),
        ("experiment_name", "\u5b9e\u9a8c A"),
        ("agentloop_endpoint", ""),
        ("sls_endpoint", "cn-hangzhou.log.aliyuncs.com"),
        ("max_rows", 10**9),
    ],
)
def test_a_usable_value_is_accepted(name, value):
    assert getattr(config(**{name: value}), name) == value


def test_the_constructor_takes_the_documented_arguments():
    settings = AgentLoopConfig("space", "plan", "cn-hangzhou")
    assert (settings.project, settings.max_rows, settings.ground_truth_field) == (None, 1000, None)
    resolved = (settings.dataset, settings.plan_name, settings.pipeline_name)
    assert resolved == (None, None, None)
    resolved = (settings.plan_evaluators, settings.selected_item_ids, settings.query_sql)
    assert resolved == (None, None, None)
    with pytest.raises(TypeError):
        AgentLoopConfig("space", "plan", "cn-hangzhou", "project")


def test_repr_hides_the_keys():
    settings = config(security_token="the-token")
    shown = repr(settings) + repr(settings.connection) + repr(settings.connection.access())
    for hidden in ("the-key-id", "the-secret", "the-token"):
        assert hidden not in shown
    assert "space" in repr(settings) and "keys given" in repr(settings)
    assert "from the environment" in repr(config(access_key_id=None, access_key_secret=None))


def test_a_connection_needs_no_plan():
    connection = Connection("cn-hangzhou", "space", access_key_id="a", access_key_secret="b")
    access = connection.access()
    assert isinstance(access.credentials, AccessKey)
    assert access.agentloop.host == "agentloop.cn-hangzhou.aliyuncs.com"
    with pytest.raises(ConfigurationError, match="agent_space"):
        Connection("cn-hangzhou", "..")


@pytest.mark.parametrize(
    "keys",
    [
        {"access_key_secret": None},
        {"access_key_id": None},
        {"access_key_id": None, "access_key_secret": None, "security_token": "t"},
        {"access_key_id": 5},
    ],
)
def test_half_a_pair_of_given_keys_is_an_error(keys):
    with pytest.raises(CredentialsError):
        config(**keys).resolve_experiment_plan()


def test_importing_the_config_loads_nothing_heavy():
    code = (
        "import sys\n"
        "import agentloop_experiment_sdk.plan.config\n"
        "heavy = {'asyncio', 'ssl', 'http.client', 'sqlite3', 'requests', 'aliyun', 'Tea',\n"
        "         'alibabacloud_credentials', 'alibabacloud_tea_openapi', 'hashlib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_is_no_text_is_not_called_empty():
    with pytest.raises(ConfigurationError) as caught:
        config(experiment_plan_id=5)
    assert str(caught.value) == "experiment_plan_id must be text, not 5."
