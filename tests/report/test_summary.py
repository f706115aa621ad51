from __future__ import annotations

import sys

import pytest
from results_builder import build, build_plain, row

from agentloop_experiment_sdk.errors import ConfigurationError, ResultsDirectoryError
from agentloop_experiment_sdk.report.measures import score_of
from agentloop_experiment_sdk.report.pricing import cost_of
from agentloop_experiment_sdk.report.summary import load_result

QWEN = {"input_tokens": 1000, "output_tokens": 500, "model": "qwen"}


@pytest.fixture
def mixed(tmp_path):
    return load_result(
        build(
            tmp_path / "r",
            [
                row("a", latency_ms=100.0, ttft_ms=10, usage=QWEN, scores={"em": True, "f": 0.5}),
                row("b", latency_ms=200.0, scores={"em": False, "f": 1}),
                row("c", latency_ms=300.0, status="failed", error=("Timeout", "too late")),
                row("d", latency_ms=400.0, status="failed", error=("Timeout", "late")),
                row("e", latency_ms=1.0, status="failed", error=("Refused", "no")),
                row("f", latency_ms=0.0, status="skipped", ttft_ms=1, scores={"em": True}),
                row("g", status="incomplete"),
                row("h", latency_ms=500.0, delivered=False, scores={"em": None, "kind": "good"}),
            ],
        )
    )


def test_the_counts_name_every_row_once(mixed):
    counts = mixed.counts
    assert (counts.total, counts.succeeded, counts.failed) == (8, 3, 3)
    assert (counts.skipped, counts.incomplete, counts.undelivered, counts.stale) == (1, 1, 1, 0)
    assert len(mixed) == 8 and [r.label for r in mixed.undelivered] == ["h"]
    assert repr(mixed).endswith("8 rows, 3 succeeded, 3 failed, 1 skipped>")


def test_skipped_rows_are_outside_every_rate(mixed):
    assert mixed.success_rate == 0.5 and mixed.success.n == 6
    assert mixed.latency.n == 6 and mixed.latency.max == 500.0
    assert mixed.ttft.n == 1 and mixed.ttft.p50 == 10
    assert mixed.metrics["em"].n == 2


def test_failures_are_grouped_by_error_the_most_frequent_first(mixed):
    assert list(mixed.errors.items()) == [("Timeout", 2), ("Refused", 1)]
    assert [(r.label, r.error_message) for r in mixed.failures] == [
        ("c", "too late"),
        ("d", "late"),
        ("e", "no"),
    ]


def test_tokens_and_cost_are_per_model(mixed):
    tokens = mixed.tokens["qwen"]
    assert (tokens.input, tokens.output, tokens.total, tokens.calls) == (1000, 500, 1500, 1)
    assert mixed.cost({"qwen": (2.0, 8.0)}).amount == pytest.approx(0.002 + 0.004)
    assert mixed.cost({"*": (1, 1)}).by_model == {"qwen": pytest.approx(0.0015)}
    assert mixed.cost({"gpt": (1, 1)}).unpriced == ("qwen",)


@pytest.mark.parametrize(
    "prices", [None, {"m": 1}, {"m": (1,)}, {"m": (1, "2")}, {"m": (-1, 1)}, {"m": (True, 1)}]
)
def test_prices_of_another_form_are_refused(prices):
    with pytest.raises(ConfigurationError, match="per million tokens"):
        cost_of({}, prices)


def test_metrics_have_a_kind_and_an_estimate(mixed):
    assert mixed.metrics["em"].kind == "pass/fail"
    assert mixed.metrics["em"].estimate.value == 0.5 and mixed.metrics["em"].unscored == 1
    assert mixed.metrics["f"].kind == "numerical"
    assert mixed.metrics["f"].estimate.value == 0.75
    assert mixed.metrics["kind"].kind == "category"
    assert mixed.metrics["kind"].distribution == {"good": 1} and mixed.metrics["kind"].n == 1


def test_repeats_are_averaged_per_task_first(tmp_path):
    rows = [row("a", repeat=str(n), scores={"f": 1.0}) for n in range(3)]
    rows.append(row("b", scores={"f": 0.0}))
    result = load_result(build(tmp_path, rows, repeats=3))
    assert result.metrics["f"].estimate.value == pytest.approx(3 / 4)  # all are 0 or 1: over rows
    rows[0] = row("a", repeat="0", scores={"f": 0.4})
    result = load_result(build(tmp_path / "2", rows, repeats=3))
    assert result.metrics["f"].estimate.value == pytest.approx((2.4 / 3 + 0) / 2)
    assert result.metrics["f"].estimate.n == 2


def test_pass_at_k_and_pass_hat_k_cluster_by_task(tmp_path):
    rows = [row("a", repeat=str(n), scores={"em": n == 0, "f": 0.3}) for n in range(3)]
    rows += [row("b", repeat=str(n), scores={"em": True, "f": 0.3}) for n in range(3)]
    rows += [row("c", scores={"em": True})]
    result = load_result(build(tmp_path, rows, repeats=3))
    assert result.repeats == 3
    assert result.pass_at(1, "em").value == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert result.pass_at(3, "em").value == 1.0 and result.pass_at(3, "em").n == 2
    assert result.pass_hat(3, "em").value == 0.5
    assert result.pass_hat(3).value == 1.0
    assert result.pass_at(4) is None
    for k in (0, 1.5, True):
        with pytest.raises(ConfigurationError, match="whole number"):
            result.pass_at(k)
    for metric in ("f", "unknown"):
        with pytest.raises(ConfigurationError, match="no pass/fail metric"):
            result.pass_at(1, metric)


def test_rows_come_as_dicts_with_their_payloads(mixed):
    first = mixed.to_dicts()[0]
    assert first["item_id"] == "a" and first["status"] == "success"
    assert first["input"] == {"id": "a", "question": "q-a"} and first["output"] == "answer"
    assert first["metrics"] == {"em": 1.0, "f": 0.5}
    assert (first["latency_ms"], first["ttft_ms"]) == (100.0, 10.0)
    assert (first["input_tokens"], first["output_tokens"]) == (1000, 500)
    assert len(mixed.to_dicts()) == 8


def test_rows_come_as_a_data_frame(mixed):
    pytest.importorskip("pandas")
    frame = mixed.to_pandas()
    assert len(frame) == 8 and list(frame["metric.em"].dropna()) == [1.0, 0.0, 1.0]
    assert list(frame["status"]).count("failed") == 3


def test_without_pandas_the_error_says_what_to_do(mixed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        mixed.to_pandas()


def test_cloud_scores_come_from_the_given_source_only(mixed):
    with pytest.raises(ConfigurationError, match="without access to the cloud"):
        mixed.cloud_scores()
    asked = []
    result = load_result(mixed.path, extras={"speed": 3}, score_source=lambda *a: asked.append(a))
    result.cloud_scores(wait=5)
    assert asked == [("record-1", 5)] and result.extras == {"speed": 3}


def test_a_run_without_answers_has_no_rates(tmp_path):
    result = load_result(build(tmp_path, [row("a", status="incomplete")]))
    assert result.success_rate is None and result.latency is None and result.ttft is None
    assert result.tokens == {} and result.errors == {} and result.metrics == {}
    assert result.rows_of("unknown") == []


def test_a_plain_agentscope_directory_is_a_result(tmp_path):
    build_plain(tmp_path, [row("t1", scores={"acc": 1}), row("t2", status="failed")])
    result = load_result(tmp_path)
    assert (result.name, result.dataset, result.status, result.record_id) == ("ace", "ACE", "", "")
    assert result.counts.undelivered == 0 and result.success_rate == 0.5
    assert result.latency is None


def test_names_fall_back_to_the_directory(tmp_path):
    folder = tmp_path / "mine" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / "solution.json").write_text('{"success": true, "output": 1}')
    result = load_result(tmp_path / "mine")
    assert result.name == "mine" and result.dataset == ""


def test_an_absent_directory_is_a_clear_error(tmp_path):
    with pytest.raises(ResultsDirectoryError):
        load_result(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "result,score",
    [
        (True, 1.0),
        (False, 0.0),
        (3, 3.0),
        ("x", "x"),
        (None, None),
        (float("inf"), None),
        ({}, None),
    ],
)
def test_a_stored_result_is_a_number_a_category_or_nothing(result, score):
    assert score_of(result) == score


@pytest.mark.parametrize("path", [None, 5, 0, "", b"", "a\0b", ["results"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigurationError, match="result_dir must be a path"):
        load_result(path)


def test_a_metric_that_is_no_text_is_refused(mixed):
    with pytest.raises(ConfigurationError, match="no pass/fail metric"):
        mixed.pass_at(1, metric=["em"])


@pytest.mark.parametrize("extras", [5, "x", ["x"]])
def test_extras_that_are_no_mapping_are_refused(mixed, extras):
    with pytest.raises(ConfigurationError, match="extras must be a mapping"):
        load_result(mixed.path, extras=extras)
