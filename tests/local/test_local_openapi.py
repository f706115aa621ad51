"""Each operation of the AgentLoop OpenAPI, asked by the unmodified official client."""

from __future__ import annotations

import pytest
from alibabacloud_agentloop20260520 import models as m
from alibabacloud_tea_openapi import utils_models
from darabonba.runtime import RuntimeOptions
from official_clients import NODES, new_run, preview

OFFLINE = [m.OfflineExperimentConfig(name="A", label="A")]
SPACE = "local"


def index(**columns):
    return {name: m.IndexKey(type=kind) for name, kind in columns.items()}


def create_dataset(client, name="faq", **columns):
    columns = columns or {"id": "text", "level": "long"}
    client.create_dataset(
        SPACE, m.CreateDatasetRequest(dataset_name=name, schema=index(**columns), description="d")
    )


def add_rows(client, rows, name="faq"):
    return client.add_dataset_data(SPACE, name, m.AddDatasetDataRequest(data_array=rows)).body


def query(client, sql, name="faq", **options):
    request = m.ExecuteQueryRequest(type="SQL", query=sql, **options)
    return client.execute_query(SPACE, name, request).body


# --- agent spaces, regions


def test_get_agent_space_names_its_project(client):
    space = client.get_agent_space(SPACE, m.GetAgentSpaceRequest()).body
    assert space.agent_space == SPACE
    assert space.sls_project == "local-project"
    assert space.region_id == "cn-local"
    assert space.create_time.endswith("Z")
    assert space.request_id


def test_create_and_list_agent_spaces(client, code_of):
    request = m.CreateAgentSpaceRequest(agent_space="second", cms_workspace="w", description="x")
    client.create_agent_space(request)
    assert code_of(client.create_agent_space, request) == (409, "AgentSpaceAlreadyExist")
    listed = client.list_agent_spaces(m.ListAgentSpacesRequest()).body
    assert [space.agent_space for space in listed.agent_spaces] == [SPACE, "second"]
    assert listed.total == 2
    only = client.list_agent_spaces(m.ListAgentSpacesRequest(agent_space="sec")).body
    assert [space.description for space in only.agent_spaces] == ["x"]


def test_agent_spaces_are_listed_page_by_page(client):
    for name in ("b", "c"):
        client.create_agent_space(m.CreateAgentSpaceRequest(agent_space=name, cms_workspace="w"))
    names, token = [], None
    while token != "":
        page = client.list_agent_spaces(
            m.ListAgentSpacesRequest(max_results=2, next_token=token)
        ).body
        names += [space.agent_space for space in page.agent_spaces]
        token = page.next_token
    assert names == [SPACE, "b", "c"]


@pytest.mark.parametrize("name", ["a/b", "a b", ".."])
def test_an_agent_space_needs_a_plain_name(client, code_of, name):
    request = m.CreateAgentSpaceRequest(agent_space=name, cms_workspace="w")
    assert code_of(client.create_agent_space, request) == (400, "ParameterInvalid")


def test_unknown_agent_space_is_404(client, code_of):
    found = code_of(client.get_agent_space, "nowhere", m.GetAgentSpaceRequest())
    assert found == (404, "AgentSpaceNotExist")


def test_two_agent_spaces_have_datasets_of_the_same_name(client):
    client.create_agent_space(m.CreateAgentSpaceRequest(agent_space="b", cms_workspace="w"))
    for space in (SPACE, "b"):
        client.create_dataset(
            space, m.CreateDatasetRequest(dataset_name="d", schema=index(id="text"))
        )
        row = {"id": space}
        client.add_dataset_data(space, "d", m.AddDatasetDataRequest(data_array=[row]))
    request = m.ExecuteQueryRequest(type="SQL", query="SELECT id FROM d")
    assert client.execute_query("b", "d", request).body.rows == [["b"]]


def test_describe_regions_needs_a_language(client, code_of):
    regions = client.describe_regions(m.DescribeRegionsRequest(language="zh")).body.regions
    assert [region.region_id for region in regions] == ["cn-local"]
    assert code_of(client.describe_regions, m.DescribeRegionsRequest()) == (400, "ParameterInvalid")


# --- datasets


def test_a_dataset_is_created_read_listed_and_deleted(client, code_of):
    create_dataset(client)
    found = client.get_dataset(SPACE, "faq", m.GetDatasetRequest()).body
    assert (found.dataset_name, found.description, found.is_favorite) == ("faq", "d", False)
    assert {name: key.type for name, key in found.schema.items()} == {"id": "text", "level": "long"}
    listed = client.list_datasets(SPACE, m.ListDatasetsRequest(dataset_name="fa")).body
    assert [item.dataset_name for item in listed.datasets] == ["faq"]
    client.delete_dataset(SPACE, "faq", m.DeleteDatasetRequest())
    gone = (404, "DatasetNotExist")
    assert code_of(client.get_dataset, SPACE, "faq", m.GetDatasetRequest()) == gone
    assert code_of(client.delete_dataset, SPACE, "faq", m.DeleteDatasetRequest()) == gone


def test_datasets_are_listed_by_label(client, code_of):
    create_dataset(client)
    found = client.list_datasets(SPACE, m.ListDatasetsRequest(labels={"team": ["a"]})).body
    assert (found.total, found.datasets) == (0, [])


def test_a_dataset_exists_once(client, code_of):
    create_dataset(client)
    assert code_of(create_dataset, client) == (409, "DatasetAlreadyExist")


@pytest.mark.parametrize("schema", [None, {}, {"a": m.IndexKey(type="blob")}])
def test_a_dataset_needs_a_schema_of_known_types(client, code_of, schema):
    request = m.CreateDatasetRequest(dataset_name="x", schema=schema)
    assert code_of(client.create_dataset, SPACE, request) == (400, "ParameterInvalid")


def test_two_columns_that_differ_in_case_only_are_refused(client, code_of):
    assert code_of(create_dataset, client, a="text", A="text") == (400, "ParameterInvalid")


def test_rows_that_are_refused_leave_no_column_behind(client, code_of):
    create_dataset(client, id="text")
    assert code_of(add_rows, client, [{"Name": 1, "name": 2}]) == (400, "ParameterInvalid")
    assert add_rows(client, [{"Name": 1}]).affected_rows == 1
    assert query(client, "SELECT * FROM faq").columns == ["id", "Name"]


def test_rows_are_added_and_keep_their_json_types(client):
    create_dataset(client)
    rows = [
        {"id": "a", "level": 3, "extra": {"k": [1, None, "ü"]}},
        {"id": "b", "level": None, "extra": 2.5},
        {"id": "c", "level": 2**40, "extra": 2**70},
        {"id": '{"not":"parsed"}', "level": 0, "extra": ""},
    ]
    assert add_rows(client, rows).affected_rows == 4
    found = query(client, "SELECT id, level, extra FROM faq")
    assert found.columns == ["id", "level", "extra"]
    assert found.rows == [[row["id"], row["level"], row["extra"]] for row in rows]
    assert found.column_types == ["varchar", "bigint", "json"]
    assert found.meta.count == 4
    assert found.meta.progress == "Complete"


def test_a_column_of_booleans_filters_and_comes_back_as_booleans(client):
    create_dataset(client, flag="json", mixed="json")
    add_rows(client, [{"flag": True, "mixed": True}, {"flag": False, "mixed": 1}])
    assert query(client, "SELECT flag, mixed FROM faq WHERE flag").rows == [[True, True]]
    add_rows(client, [{"flag": None, "mixed": None}, {"flag": True}])
    assert query(client, "SELECT flag FROM faq").rows == [[True], [False], [None], [True]]
    add_rows(client, [{"flag": "text"}])
    everything = query(client, "SELECT flag, mixed FROM faq").rows
    assert everything == [[True, True], [False, 1], [None, None], [True, None], ["text", None]]
    add_rows(client, [{"flag": False}])
    assert query(client, "SELECT flag FROM faq").rows[-1] == [False]


def test_whole_number_ids_are_found_by_their_text(client):
    create_dataset(client, id="long")
    add_rows(client, [{"id": 1}, {"id": 2}])
    assert query(client, "SELECT id FROM faq WHERE id IN ('2', '3')").rows == [[2]]


def test_rows_must_be_a_list_of_objects(client, code_of):
    create_dataset(client)
    assert code_of(add_rows, client, [1]) == (400, "ParameterInvalid")
    assert code_of(add_rows, client, None) == (400, "ParameterInvalid")
    assert code_of(add_rows, client, [{"": 1, "a\x00": 2}]) == (400, "ParameterInvalid")
    assert code_of(add_rows, client, [{}], name="other") == (404, "DatasetNotExist")


# --- plans


def test_a_plan_is_created_read_updated_and_deleted(client, code_of):
    made = client.create_experiment_plan(
        SPACE,
        m.CreateExperimentPlanRequest(
            plan_name="p",
            experiment_type="OFFLINE",
            dataset_id="faq",
            selected_item_ids=["1"],
            pipeline_name="pipe",
            evaluators=[m.Evaluator(name="e", type="LLM")],
        ),
    ).body
    assert made.status == "created"
    plan = client.get_experiment_plan(SPACE, made.plan_id, m.GetExperimentPlanRequest()).body
    assert (plan.plan_name, plan.experiment_type, plan.dataset_id) == ("p", "offline", "faq")
    assert (plan.selected_item_ids, plan.pipeline_name) == (["1"], "pipe")
    assert [evaluator.name for evaluator in plan.evaluators] == ["e"]
    change = m.UpdateExperimentPlanRequest(selected_item_ids=[], pipeline_name="", query_sql="a>1")
    assert client.update_experiment_plan(SPACE, made.plan_id, change).body.status == "updated"
    plan = client.get_experiment_plan(SPACE, made.plan_id, m.GetExperimentPlanRequest()).body
    assert (plan.selected_item_ids, plan.pipeline_name, plan.query_sql) == ([], "", "a>1")
    assert plan.dataset_id == "faq"
    gone = client.delete_experiment_plan(SPACE, made.plan_id, m.DeleteExperimentPlanRequest())
    assert gone.body.status == "deleted"
    found = code_of(client.get_experiment_plan, SPACE, made.plan_id, m.GetExperimentPlanRequest())
    assert found == (404, "ExperimentPlanNotExist")


def test_plans_are_listed_newest_first_without_their_details(local, client):
    for name in ("one", "two", "other"):
        local.create_plan(name=name, selected_item_ids=["1"])
    found = client.list_experiment_plans(SPACE, m.ListExperimentPlansRequest(limit=2)).body
    assert [plan.plan_name for plan in found.plans] == ["other", "two"]
    assert (found.total, found.page, found.page_size) == (3, 0, 2)
    assert not hasattr(found.plans[0], "selected_item_ids")
    rest = client.list_experiment_plans(SPACE, m.ListExperimentPlansRequest(limit=2, offset=2))
    assert [plan.plan_name for plan in rest.body.plans] == ["one"]
    named = client.list_experiment_plans(SPACE, m.ListExperimentPlansRequest(plan_name="o"))
    assert named.body.total == 3
    none = client.list_experiment_plans(SPACE, m.ListExperimentPlansRequest(status="stopped"))
    assert none.body.total == 0


def test_a_plan_needs_a_new_name_and_a_type_in_upper_case(local, client, code_of):
    local.create_plan(name="p")

    def create(**fields):
        return code_of(
            client.create_experiment_plan, SPACE, m.CreateExperimentPlanRequest(**fields)
        )

    assert create(plan_name="p", experiment_type="OFFLINE") == (409, "ExperimentPlanAlreadyExist")
    assert create(plan_name="q", experiment_type="offline") == (400, "ParameterInvalid")
    assert create(experiment_type="OFFLINE") == (400, "ParameterInvalid")
    wrong = create(plan_name="q", experiment_type="OFFLINE", dataset_id=5)
    assert wrong == (400, "ParameterInvalid")


# --- runs


def update(client, record_id, **fields):
    request = m.UpdateExperimentRunRequest(**fields)
    return client.update_experiment_run(SPACE, record_id, request).body


def test_a_run_goes_from_pending_to_completed(local, client):
    record_id = new_run(local)
    record = client.get_experiment_run(SPACE, record_id, m.GetExperimentRunRequest()).body
    assert record.region_id == "cn-local"
    assert (record.record.status, record.record.total_tasks) == ("pending", 0)
    assert record.record.record_name.startswith("plan 0 20")
    assert record.record.dataset_id == "dataset"
    assert record.record.data_source_type == "dataset-full"
    assert update(client, record_id, status="running", total_tasks=4).status == "running"
    assert update(client, record_id, completed_tasks=1, failed_tasks=1).status == "running"
    now = local.record(record_id)
    assert (now["totalTasks"], now["completedTasks"], now["failedTasks"]) == (4, 1, 1)
    assert now["progress"] == 50.0
    assert update(client, record_id, status="completed").status == "completed"
    assert [sorted(body) for body in local.updates(record_id)] == [
        ["status", "totalTasks"],
        ["completedTasks", "failedTasks"],
        ["status"],
    ]


def test_an_ended_run_may_be_reopened(local, client):
    record_id = new_run(local, status="completed")
    assert update(client, record_id, status="running").status == "running"


def test_a_client_token_creates_one_run(local, client):
    plan = local.create_plan()

    def create(token):
        request = m.CreateExperimentRunRequest(
            experiment_plan_id=plan, client_token=token, offline_experiments=OFFLINE
        )
        return client.create_experiment_run(SPACE, request).body.record_id

    assert create("t") == create("t")
    assert create(None) != create(None)
    assert create("u") != create("t")
    local.faults.ignore_client_tokens()
    assert create("u") != create("u")


def test_runs_are_listed_newest_first_and_filtered(local, client):
    first, second = new_run(local), new_run(local, status="running")

    def found(**fields):
        body = client.list_experiment_runs(SPACE, m.ListExperimentRunsRequest(**fields)).body
        return [record.record_id for record in body.records]

    assert found() == [second, first] == list(reversed(local.records()))
    assert found(page_size=1) == [second]
    assert found(page=1, page_size=1) == [first]
    assert found(status="running") == [second]
    assert found(plan_name="plan 0") == [first]
    assert found(dataset_id="other") == []
    assert found(experiment_name="A") == [second, first]
    assert found(experiment_name="B") == []


def test_a_deleted_run_is_gone(local, client, code_of):
    record_id = new_run(local)
    client.delete_experiment_run(SPACE, record_id, m.DeleteExperimentRunRequest())
    gone = (404, "ExperimentRecordNotExist")
    assert code_of(client.get_experiment_run, SPACE, record_id, m.GetExperimentRunRequest()) == gone
    assert code_of(update, client, record_id, status="running") == gone
    with pytest.raises(KeyError):
        local.record(record_id)


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"experiment_plan_id": "none"}, (404, "ExperimentPlanNotExist")),
        ({"experiment_plan_id": None}, (400, "ParameterInvalid")),
        ({"offline_experiments": None}, (400, "ParameterInvalid")),
        ({"offline_experiments": OFFLINE * 6}, (400, "ParameterInvalid")),
        ({"status": "sleeping"}, (400, "ParameterInvalid")),
        ({"total_tasks": -1}, (400, "ParameterInvalid")),
        ({"total_tasks": "3"}, (400, "ParameterInvalid")),
    ],
)
def test_a_malformed_run_is_refused(local, client, code_of, fields, expected):
    given = {"experiment_plan_id": local.create_plan(), "offline_experiments": OFFLINE}
    given.update(fields)
    request = m.CreateExperimentRunRequest(**given)
    assert code_of(client.create_experiment_run, SPACE, request) == expected
    assert local.records() == []


def test_page_numbers_must_be_numbers(client, code_of):
    request = m.ListExperimentRunsRequest(page="first")
    assert code_of(client.list_experiment_runs, SPACE, request) == (400, "ParameterInvalid")


# --- pipelines


def pipeline_request(name):
    return m.CreatePipelineRequest().from_map(
        {
            "pipelineName": name,
            "source": {"type": "logstore", "logstore": {"logstore": "logstore-tracing"}},
            "pipeline": {"nodes": NODES},
            "sink": {"type": "dataset"},
            "executePolicy": {"mode": "RunOnce"},
        }
    )


def test_a_pipeline_is_created_read_listed_and_deleted(client, code_of):
    client.create_pipeline(SPACE, pipeline_request("pipe-1"))
    assert code_of(client.create_pipeline, SPACE, pipeline_request("pipe-1")) == (
        409,
        "PipelineAlreadyExist",
    )
    assert code_of(client.create_pipeline, SPACE, pipeline_request("P")) == (
        400,
        "ParameterInvalid",
    )
    found = client.get_pipeline(SPACE, "pipe-1", m.GetPipelineRequest()).body
    assert found.pipeline.nodes[0].parameters == NODES[0]["parameters"]
    assert found.source.logstore.logstore == "logstore-tracing"
    listed = client.list_pipelines(SPACE, m.ListPipelinesRequest(pipeline_name="pipe-1")).body
    assert [item.pipeline_name for item in listed.pipelines] == ["pipe-1"]
    assert (listed.total_count, listed.next_token) == (1, "")
    client.delete_pipeline(SPACE, "pipe-1", m.DeletePipelineRequest())
    gone = (404, "PipelineNotExist")
    assert code_of(client.get_pipeline, SPACE, "pipe-1", m.GetPipelineRequest()) == gone


def test_a_preview_sees_the_trace_it_is_bound_to(local, client):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert preview(client, trace).data == []
    local.put_logs(
        "logstore-tracing",
        [{"traceId": trace, "user_query": "why?"}, {"traceId": "f" * 32, "user_query": "no"}],
    )
    found = preview(client, trace)
    assert found.data == [{"question": "why?", "none": None}]
    assert (found.meta.count, found.meta.progress) == (1, "Complete")


def test_a_preview_gives_at_most_five_rows_through_all_its_nodes(local, client):
    local.put_logs("logstore-tracing", [{"user_query": str(at)} for at in range(9)])
    nodes = NODES + [{"id": "m", "type": "project", "parameters": {"q": "question"}}]
    assert preview(client, pipeline={"nodes": nodes}).data == [{"q": str(at)} for at in range(5)]


def test_a_preview_may_compute(local, client):
    local.put_logs("logstore-tracing", [{"user_query": "a"}, {"user_query": "b"}])
    source = {
        "type": "logstore",
        "logstore": {
            "logstore": "logstore-tracing",
            "query": "* | SELECT max(user_query) AS user_query",
        },
    }
    assert preview(client, source=source).data == [{"question": "b", "none": None}]


LOGSTORE = {"logstore": "logstore-tracing"}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"fromTime": 5, "toTime": 5}, (400, "ParameterInvalid")),
        ({"toTime": 1_700_000_000_000}, (400, "ParameterInvalid")),
        ({"toTime": None}, (400, "ParameterInvalid")),
        ({"source": {"type": "dataset"}}, (400, "ParameterInvalid")),
        ({"source": {"type": "logstore", "logstore": {}}}, (400, "ParameterInvalid")),
        (
            {"source": {"type": "logstore", "logstore": {"logstore": "none"}}},
            (404, "LogStoreNotExist"),
        ),
        (
            {"source": {"type": "logstore", "logstore": dict(LOGSTORE, project="none")}},
            (404, "ProjectNotExist"),
        ),
        (
            {"source": {"type": "logstore", "logstore": dict(LOGSTORE, query='a: "')}},
            (400, "ParameterInvalid"),
        ),
        ({"pipeline": {"nodes": []}}, (400, "ParameterInvalid")),
        ({"pipeline": {"nodes": [{"id": "n", "type": "project"}]}}, (400, "ParameterInvalid")),
        (
            {"pipeline": {"nodes": [{"id": "n", "type": "llm", "parameters": {"a": "b"}}]}},
            (400, "UnsupportedNodeType"),
        ),
    ],
)
def test_a_preview_that_cannot_be_made_says_why(client, code_of, changes, expected):
    assert code_of(preview, client, **changes) == expected


# --- evaluations


def test_scores_of_a_record_are_found_through_its_evaluation_task(local, client, logs):
    record_id = new_run(local)
    rows = [
        {"evaluator_name": "exact", "score_name": "exact", "score_value": 0.5},
        {"evaluator_name": "exact", "score_value": 1, "status": "failed"},
    ]
    task_id = local.score(record_id, rows[:1], status="running")
    assert local.score(record_id, rows[1:]) == task_id
    assert local.record(record_id)["evaluationTaskId"] == task_id
    task = client.get_evaluation_task(SPACE, task_id, m.GetEvaluationTaskRequest()).body
    assert (task.status, task.channel) == ("completed", "experiment")
    request = m.ListEvaluationRunsRequest()
    (run,) = client.list_evaluation_runs(SPACE, task_id, request).body.evaluation_runs
    assert (run.total_count, run.success_count, run.failed_count) == (2, 1, 1)
    request = m.GetEvaluationRunRequest()
    assert client.get_evaluation_run(SPACE, task_id, run.run_id, request).body.status == "completed"
    found = logs.get_log(
        "local-project",
        "evaluation_detail",
        0,
        4_000_000_000,
        query='task_id: "{}" | SELECT avg(score_value) AS mean FROM log'.format(task_id),
    )
    assert [log.get_contents() for log in found.get_logs()] == [{"mean": "0.75"}]


def test_evaluation_tasks_of_experiments_are_listed_under_their_channel(local, client, code_of):
    task_id = local.score(new_run(local), [{"score_value": 1}])

    def found(**fields):
        request = m.ListEvaluationTasksRequest(agent_space=SPACE, **fields)
        return [
            task.task_id for task in client.list_evaluation_tasks(request).body.evaluation_tasks
        ]

    assert found() == []
    assert found(channel="experiment") == [task_id]
    assert found(channel="experiment", status="running") == []
    assert found(channel="experiment", task_name="plan") == [task_id]


def test_unknown_evaluations_are_404(local, client, code_of):
    task_id = local.score(new_run(local), [{"score_value": 1}])
    none = m.GetEvaluationTaskRequest()
    assert code_of(client.get_evaluation_task, SPACE, "x", none) == (404, "EvaluationTaskNotExist")
    none = m.GetEvaluationRunRequest()
    found = code_of(client.get_evaluation_run, SPACE, task_id, "x", none)
    assert found == (404, "EvaluationRunNotExist")
    request = m.ListEvaluationRunsRequest(status="running")
    assert client.list_evaluation_runs(SPACE, task_id, request).body.total_count == 0
    with pytest.raises(KeyError):
        local.score("x", [])


# --- what is not there


def call(
    client, action, method, pathname, version="2026-05-20", query=None, body=None, form="json"
):
    """What the client's typed methods would not send."""
    params = utils_models.Params(
        action=action,
        version=version,
        protocol="HTTPS",
        pathname=pathname,
        method=method,
        auth_type="AK",
        style="ROA",
        req_body_type=form,
        body_type="json",
    )
    request = utils_models.OpenApiRequest(headers={}, query=query or {}, body=body)
    return client.call_api(params, request, RuntimeOptions())


def test_another_version_is_refused(client, code_of):
    path = "/agentspace/local"
    found = code_of(call, client, "GetAgentSpace", "GET", path, version="2020-01-01")
    assert found == (404, "InvalidVersion")
    assert call(client, "GetAgentSpace", "GET", path)["body"]["agentSpace"] == SPACE


@pytest.mark.parametrize("form, body", [("json", [1]), ("formData", {"a": "b"})])
def test_a_body_that_is_no_json_object_is_refused(client, code_of, form, body):
    found = code_of(call, client, "CreateAgentSpace", "POST", "/agentspace", body=body, form=form)
    assert found == (400, "ParameterInvalid")


@pytest.mark.parametrize("labels", ["x", "[]"])
def test_labels_must_be_a_json_object(client, code_of, labels):
    path = "/agentspace/local/dataset"
    found = code_of(call, client, "ListDatasets", "GET", path, query={"labels": labels})
    assert found == (400, "ParameterInvalid")


@pytest.mark.parametrize("given", ["A", ["A"]])
def test_offline_experiments_must_be_a_list_of_objects(local, client, code_of, given):
    path = "/api/v1/experimentruns/local/execute"
    body = {"experimentPlanId": local.create_plan(), "offlineExperiments": given}
    found = code_of(call, client, "CreateExperimentRun", "POST", path, body=body)
    assert found == (400, "ParameterInvalid")


@pytest.mark.parametrize(
    "method, path", [("POST", "/agentspace/local"), ("GET", "/agentspaces/local"), ("GET", "/")]
)
def test_an_action_at_another_place_is_refused(client, code_of, method, path):
    found = code_of(call, client, "GetAgentSpace", method, path)
    assert found == (404, "InvalidAction.NotFound")


def test_an_operation_that_is_not_offered_says_so(client, code_of):
    found = code_of(client.delete_agent_space, SPACE, m.DeleteAgentSpaceRequest())
    assert found == (404, "InvalidAction.NotFound")


def test_an_empty_name_in_the_path_is_no_operation(client, code_of):
    request = m.GetExperimentPlanRequest()
    assert code_of(client.get_experiment_plan, "", "p", request) == (404, "InvalidAction.NotFound")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get_experiment_plan("x", "p", m.GetExperimentPlanRequest()),
        lambda client: client.list_experiment_plans("x", m.ListExperimentPlansRequest()),
        lambda client: client.list_experiment_runs("x", m.ListExperimentRunsRequest()),
        lambda client: client.list_datasets("x", m.ListDatasetsRequest()),
        lambda client: client.list_pipelines("x", m.ListPipelinesRequest()),
        lambda client: client.get_evaluation_task("x", "t", m.GetEvaluationTaskRequest()),
    ],
)
def test_every_operation_refuses_an_unknown_agent_space(client, code_of, ask):
    assert code_of(ask, client) == (404, "AgentSpaceNotExist")
