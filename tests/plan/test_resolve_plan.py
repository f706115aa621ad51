"""From settings to a plan, with the official client against a LocalAgentLoop."""

import dataclasses

import pytest
from alibabacloud_agentloop20260520 import models
from alibabacloud_agentloop20260520.client import Client
from alibabacloud_tea_openapi.utils_models import Config

from agentloop_experiment_sdk.errors import CloudError, ConfigurationError, PlanError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.local.platform import SPACE
from agentloop_experiment_sdk.local.store import Store
from agentloop_experiment_sdk.plan.config import AgentLoopConfig


@pytest.fixture
def local():
    with LocalAgentLoop() as local:
        local.load_dataset([{"id": "1", "q": "a"}], name="faq")
        yield local


def config(local, plan_id, **changes):
    at = local.endpoints
    values = {
        "agent_space": at.agent_space,
        "region_id": at.region_id,
        "agentloop_endpoint": at.agentloop_endpoint,
        "sls_endpoint": at.sls_endpoint,
        "access_key_id": at.access_key_id,
        "access_key_secret": at.access_key_secret,
    }
    values.update(changes)
    return AgentLoopConfig(experiment_plan_id=plan_id, **values)


def official_client(local):
    """For what ``LocalAgentLoop`` refuses to make and the platform does not."""
    at = local.endpoints
    keys = {"access_key_id": at.access_key_id, "access_key_secret": at.access_key_secret}
    endpoint = at.agentloop_endpoint.split("://")[1]
    return Client(Config(protocol="http", endpoint=endpoint, **keys))


def test_the_plan_fills_the_fields_and_is_returned_frozen(local):
    evaluators = [{"name": "Builtin.agent_correctness", "type": "AGENT", "new": {"key": 1}}]
    plan_id = local.create_plan(
        dataset="faq",
        name="my plan",
        selected_item_ids=["1", "2"],
        query_sql="level > 2",
        pipeline_name="pipe",
        evaluators=evaluators,
    )
    settings = config(
        local, plan_id, ground_truth_field="gold", experiment_name="group", max_rows=7
    )
    plan = settings.resolve_experiment_plan()
    assert (settings.dataset, settings.plan_name, settings.pipeline_name) == (
        "faq",
        "my plan",
        "pipe",
    )
    assert (settings.selected_item_ids, settings.query_sql) == (["1", "2"], "level > 2")
    assert settings.plan_evaluators == evaluators
    assert settings.project == plan.project == "local-project"
    assert (plan.selected_item_ids, plan.max_rows) == (("1", "2"), 7)
    assert (plan.ground_truth_field, plan.experiment_name) == ("gold", "group")
    assert plan.identity.plan_id == plan_id and plan.identity.region_id == "cn-local"
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.dataset = "other"


def test_defaults_of_a_bare_plan(local):
    plan = config(local, local.create_plan(dataset="faq")).resolve_experiment_plan()
    assert (plan.pipeline_name, plan.query_sql, plan.selected_item_ids) == ("", "", ())
    assert (plan.experiment_name, plan.ground_truth_field) == ("experimentA", None)


def test_a_given_project_saves_the_question_for_it(local):
    settings = config(local, local.create_plan(dataset="faq"), project="mine")
    assert settings.resolve_experiment_plan().project == settings.project == "mine"
    assert local.requests["GetAgentSpace"] == 0


def test_each_resolution_asks_again(local):
    settings = config(local, local.create_plan(dataset="faq"))
    settings.resolve_experiment_plan()
    settings.resolve_experiment_plan()
    assert local.requests["GetExperimentPlan"] == local.requests["GetAgentSpace"] == 2
    settings.project = "mine"
    assert settings.resolve_experiment_plan().project == "mine"
    assert local.requests["GetAgentSpace"] == 2


@pytest.mark.parametrize("kind", ["offline", "OFFLINE", "Offline"])
def test_offline_counts_in_any_letter_case(local, kind):
    plan_id = local.create_plan(dataset="faq", experiment_type=kind)
    assert config(local, plan_id).resolve_experiment_plan().dataset == "faq"


def test_an_online_plan_is_refused(local):
    plan_id = local.create_plan(dataset="faq", experiment_type="online")
    with pytest.raises(PlanError, match="only offline plans") as caught:
        config(local, plan_id).resolve_experiment_plan()
    assert plan_id in str(caught.value) and caught.value.request_id in str(caught.value)


def test_a_plan_without_a_dataset_says_so(local):
    request = models.CreateExperimentPlanRequest(plan_name="bare", experiment_type="OFFLINE")
    plan_id = official_client(local).create_experiment_plan("local", request).body.plan_id
    with pytest.raises(PlanError, match="no dataset"):
        config(local, plan_id).resolve_experiment_plan()


def test_a_missing_plan_names_space_plan_code_and_request(local):
    with pytest.raises(PlanError) as caught:
        config(local, "no-such-plan").resolve_experiment_plan()
    error, text = caught.value, str(caught.value)
    for part in ("no-such-plan", "local", "cn-local", error.code, error.request_id, "Check"):
        assert part in text
    assert error.code == "ExperimentPlanNotExist"


def test_a_missing_space_is_told_even_with_a_project(local):
    plan_id = local.create_plan(dataset="faq")
    settings = config(local, plan_id, agent_space="elsewhere", project="mine")
    with pytest.raises(PlanError, match="elsewhere"):
        settings.resolve_experiment_plan()


def test_wrong_keys_point_to_the_keys(local):
    plan_id = local.create_plan(dataset="faq")
    settings = config(local, plan_id, access_key_secret="wrong-secret")
    with pytest.raises(CloudError) as caught:
        settings.resolve_experiment_plan()
    assert "AccessKey" in str(caught.value) and "wrong-secret" not in str(caught.value)
    assert caught.value.request_id in str(caught.value)


@pytest.mark.parametrize(
    ("action", "place"),
    [("GetExperimentPlan", "experiment plan"), ("GetAgentSpace", "agent space")],
)
def test_a_missing_permission_names_the_action(local, action, place):
    plan_id = local.create_plan(dataset="faq")
    local.faults.fail(action, 403, "Forbidden.RAM")
    with pytest.raises(CloudError, match="Could not read the " + place) as caught:
        config(local, plan_id).resolve_experiment_plan()
    assert "agentloop:" + action in str(caught.value)
    assert (caught.value.code, caught.value.status) == ("Forbidden.RAM", 403)


def test_an_unreachable_region_points_to_the_endpoint(local):
    settings = config(local, "plan", agentloop_endpoint="http://127.0.0.1:1", project="mine")
    with pytest.raises(CloudError, match="agentloop_endpoint") as caught:
        settings.resolve_experiment_plan()
    assert caught.value.retryable and not caught.value.ambiguous


def test_an_agent_space_without_a_project_says_what_to_do(tmp_path):
    path = str(tmp_path / "data")
    with LocalAgentLoop(path) as local:
        local.load_dataset([{"id": "1"}], name="faq")
    store = Store(path)  # neither a setting nor an operation leaves a space without its project
    store.put(SPACE, "", "local", dict(store.get(SPACE, "", "local"), slsProject=""))
    store.close()
    with LocalAgentLoop(path) as local, pytest.raises(PlanError, match="not bound to an SLS proj"):
        config(local, local.create_plan(dataset="faq")).resolve_experiment_plan()


def test_a_temporary_key_works_with_its_token(local):
    local.set_access_key("sts-id", "sts-secret", "sts-token")
    keys = {"access_key_id": "sts-id", "access_key_secret": "sts-secret"}
    plan_id = local.create_plan(dataset="faq")
    with pytest.raises(CloudError):
        config(local, plan_id, **keys).resolve_experiment_plan()
    settings = config(local, plan_id, security_token="sts-token", **keys)
    assert settings.resolve_experiment_plan().dataset == "faq"


def test_a_hiccup_while_resolving_is_survived(local):
    local.faults.fail("GetExperimentPlan", 503, "ServiceUnavailable", times=1)
    settings = config(local, local.create_plan(dataset="faq"))
    assert settings.resolve_experiment_plan().dataset == "faq"


def test_a_bad_value_sends_nothing(local):
    settings = config(local, local.create_plan(dataset="faq"))
    settings.max_rows = 0
    with pytest.raises(ConfigurationError):
        settings.resolve_experiment_plan()
    assert sum(local.requests.values()) == 0
