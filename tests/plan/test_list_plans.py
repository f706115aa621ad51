"""All plans of an agent space, without a plan id."""

import pytest

from agentloop_experiment_sdk.errors import CloudError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.plan.connection import Connection, list_plans


def connection(local, **changes):
    at = local.endpoints
    values = {
        "region_id": at.region_id,
        "agent_space": at.agent_space,
        "agentloop_endpoint": at.agentloop_endpoint,
        "access_key_id": at.access_key_id,
        "access_key_secret": at.access_key_secret,
    }
    values.update(changes)
    return Connection(**values)


def test_all_pages_are_read_newest_first():
    with LocalAgentLoop() as local:
        made = [local.create_plan(dataset="d", name="plan {}".format(n)) for n in range(230)]
        plans = list_plans(connection(local))
        assert [plan.plan_id for plan in plans] == made[::-1]
        assert local.requests["ListExperimentPlans"] == 3


def test_a_summary_carries_what_a_person_chooses_by():
    with LocalAgentLoop() as local:
        local.create_plan(dataset="faq", name="one", query_sql="a > 1", pipeline_name="pipe")
        local.create_plan(dataset="other", name="two", experiment_type="ONLINE")
        (plan,) = list_plans(connection(local), plan_name="one")
        assert (plan.plan_name, plan.dataset, plan.experiment_type) == ("one", "faq", "offline")
        assert (plan.query_sql, plan.pipeline_name) == ("a > 1", "pipe")
        assert isinstance(plan.created_at, int)
        assert list_plans(connection(local), status="stopped") == ()


def test_no_plan_is_an_empty_list():
    with LocalAgentLoop() as local:
        assert list_plans(connection(local)) == ()


def test_an_unknown_space_is_the_services_error():
    with LocalAgentLoop() as local, pytest.raises(CloudError) as caught:
        list_plans(connection(local, agent_space="elsewhere"))
    assert caught.value.status == 404
