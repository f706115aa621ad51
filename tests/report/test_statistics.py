from __future__ import annotations

import math
import random
import statistics as standard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.report import statistics as ours


@pytest.fixture
def scipy_stats():
    return pytest.importorskip("scipy.stats")


@pytest.fixture
def proportion():
    return pytest.importorskip("statsmodels.stats.proportion")


CASES = [(0, 1), (1, 1), (0, 20), (20, 20), (3, 20), (97, 200), (1, 10000), (9999, 10000)]


@pytest.mark.parametrize("successes,trials", CASES)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_wilson_agrees_with_statsmodels(proportion, successes, trials, confidence):
    expected = proportion.proportion_confint(successes, trials, 1 - confidence, "wilson")
    found = ours.wilson_interval(successes, trials, confidence)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("successes,trials", CASES)
def test_clopper_pearson_agrees_with_statsmodels(proportion, successes, trials):
    expected = proportion.proportion_confint(successes, trials, 0.05, "beta")
    assert ours.clopper_pearson(successes, trials) == pytest.approx(expected, abs=1e-9)


def test_wilson_never_leaves_the_share_outside():
    for trials in range(1, 300):
        assert ours.wilson_interval(trials, trials)[1] == 1.0
        assert ours.wilson_interval(0, trials)[0] == 0.0


def test_wilson_without_trials_says_nothing():
    assert ours.wilson_interval(0, 0) == (0.0, 1.0)


def test_with_one_repeat_the_clustered_interval_is_the_plain_one():
    clusters = [(1, 1)] * 180 + [(0, 1)] * 20
    found = ours.clustered_proportion(clusters)
    assert (found.value, found.n) == (0.9, 200)
    assert (found.low, found.high) == pytest.approx(ours.wilson_interval(180, 200), abs=1e-3)


def test_repeats_that_always_agree_count_as_one_try_each():
    found = ours.clustered_proportion([(5, 5)] * 45 + [(0, 5)] * 5)
    assert (found.low, found.high) == pytest.approx(ours.wilson_interval(45, 50), abs=1e-2)


def test_repeats_that_are_independent_count_in_full():
    rng = random.Random(7)
    clusters = [(sum(rng.random() < 0.5 for _ in range(10)), 10) for _ in range(400)]
    found = ours.clustered_proportion(clusters)
    low, high = ours.wilson_interval(sum(c[0] for c in clusters), 4000)
    assert high - low <= found.high - found.low <= 1.25 * (high - low)


def test_a_rate_of_one_is_still_uncertain_by_the_number_of_tasks():
    found = ours.clustered_proportion([(3, 3)] * 20)
    assert (found.low, found.high) == pytest.approx(ours.wilson_interval(20, 20))
    assert ours.clustered_proportion([(2, 4)]).n == 1
    assert ours.clustered_proportion([(0, 0)]) == ours.Estimate(0.0, 0.0, 1.0, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_those_of_numpy(values, share):
    numpy = pytest.importorskip("numpy")
    expected = float(numpy.percentile(values, share * 100))
    assert ours.percentile(values, share) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("values,share", [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_percentile_of_nothing_is_refused(values, share):
    with pytest.raises(ValueError):
        ours.percentile(values, share)


def test_the_bootstrap_interval_agrees_with_scipy(scipy_stats):
    rng = random.Random(3)
    values = [rng.expovariate(1.0) for _ in range(60)]
    expected = scipy_stats.bootstrap(
        (values,), lambda a, axis: a.mean(axis=axis), method="percentile", random_state=1
    ).confidence_interval
    found = ours.bootstrap_mean(values)
    width = expected.high - expected.low
    assert found.value == pytest.approx(standard.fmean(values))
    assert found.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.high == pytest.approx(expected.high, abs=0.1 * width)


def test_many_values_take_the_normal_interval_of_scipy(scipy_stats):
    rng = random.Random(4)
    values = [rng.gauss(10, 3) for _ in range(2000)]
    scale = standard.stdev(values) / math.sqrt(len(values))
    expected = scipy_stats.norm.interval(0.95, standard.fmean(values), scale)
    found = ours.bootstrap_mean(values)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9)


def test_the_bootstrap_is_the_same_each_time_and_needs_no_values():
    values = [1.0, 2.0, 4.0, 8.0]
    assert ours.bootstrap_mean(values) == ours.bootstrap_mean(values)
    assert ours.bootstrap_mean(values, seed=1) != ours.bootstrap_mean(values, seed=2)
    assert ours.bootstrap_mean([]) == ours.Estimate(0.0, 0.0, 0.0, 0)
    assert ours.bootstrap_mean([3.0, 3.0]) == ours.Estimate(3.0, 3.0, 3.0, 2)


def test_the_paired_bootstrap_is_that_of_the_differences():
    old, new = [1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 6.0]
    found = ours.paired_bootstrap(old, new)
    assert found == ours.bootstrap_mean([1.0, 0.5, 0.0, 2.0])
    with pytest.raises(ValueError):
        ours.paired_bootstrap([1.0], [])


@pytest.mark.parametrize("lost,won", [(0, 0), (3, 0), (30, 2), (7, 9), (400, 350), (5000, 5200)])
def test_mcnemar_agrees_with_statsmodels(lost, won):
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    expected = tables.mcnemar([[50, lost], [won, 50]], exact=True).pvalue
    expected = 1.0 if math.isnan(expected) else min(1.0, expected)
    assert ours.mcnemar_exact(lost, won) == pytest.approx(expected, rel=1e-6)


def test_the_sign_test_agrees_with_scipy(scipy_stats):
    differences = [1.0, 2.0, -1.0, 0.0, 3.0, 0.5, 0.1, 0.0, 4.0]
    expected = scipy_stats.binomtest(1, 7, 0.5).pvalue
    assert ours.sign_test(differences) == pytest.approx(expected)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 100), st.integers(0, 40))
def test_the_interval_of_a_change_holds_zero_whenever_the_exact_test_does(lost, won, both, rest):
    found = ours.paired_proportions(both, lost, won, rest)
    assert found.low <= found.value + 1e-12 and found.value <= found.high + 1e-12
    if ours.mcnemar_exact(lost, won) > 0.05:
        assert found.low <= 0 <= found.high


def test_the_interval_of_a_large_change_is_that_of_the_normal_approximation():
    found = ours.paired_proportions(8000, 713, 200, 1087)
    change = (200 - 713) / 10000
    spread = 1.96 * math.sqrt((913 / 10000 - change**2) / 10000)
    assert found.value == pytest.approx(change)
    assert found.low == pytest.approx(change - spread, abs=2e-4)
    assert found.high == pytest.approx(change + spread, abs=2e-4)


def test_the_interval_covers_a_known_change_as_often_as_it_says():
    rng = random.Random(5)
    shares, hits = (0.8, 0.1, 0.05, 0.05), 0
    for _ in range(400):
        drawn = rng.choices(range(4), shares, k=100)
        found = ours.paired_proportions(*[drawn.count(kind) for kind in range(4)])
        hits += found.low <= 0.05 - 0.1 <= found.high
    assert hits >= 0.93 * 400


def test_no_pairs_say_nothing_about_a_change():
    assert ours.paired_proportions(0, 0, 0, 0) == ours.Estimate(0.0, -1.0, 1.0, 0)
    assert ours.paired_proportions(10, 0, 0, 0).high > 0.2


def test_pass_at_k_and_pass_hat_k_are_the_shares_over_all_choices():
    from itertools import combinations

    tries = [True, True, False, False, False]
    for k in range(1, 6):
        drawn = list(combinations(tries, k))
        assert ours.pass_at_k(5, 2, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))
        assert ours.pass_hat_k(5, 2, k) == pytest.approx(sum(map(all, drawn)) / len(drawn))


@pytest.mark.parametrize("trials,passed,k", [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_impossible_tries_are_refused(trials, passed, k):
    with pytest.raises(ValueError):
        ours.pass_at_k(trials, passed, k)
