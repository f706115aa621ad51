"""The statistics of the reports, in the standard library alone; each names its source.

Randomness is seeded: the same results always give the same intervals. Confidence is a share
(0.95), intervals are two-sided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Sequence, Tuple

CONFIDENCE = 0.95
RESAMPLES = 2000
# Above this many values the resampled interval and the normal one agree to within the noise of
# resampling, and drawing millions of numbers would only cost time.
BOOTSTRAP_LIMIT = 500


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval and how many independent values it rests on."""

    value: float
    low: float
    high: float
    n: int


def wilson_interval(
    successes: float, trials: float, confidence: float = CONFIDENCE
) -> Tuple[float, float]:
    """The Wilson score interval of a proportion; (0, 1) without trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference,
    JASA 22 (1927); recommended over the normal interval by Brown, Cai and DasGupta, Statistical
    Science 16 (2001).
    """
    if trials <= 0:
        return (0.0, 1.0)
    z = _z(confidence)
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # the ends are exact where all or none succeeded; rounding must not leave the share outside
    low = 0.0 if successes <= 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if successes >= trials else min(1.0, (centre + spread) / scale)
    return (low, high)


def clustered_proportion(
    clusters: Sequence[Tuple[int, int]], confidence: float = CONFIDENCE
) -> Estimate:
    """A proportion over (successes, trials) of each task, with a Wilson interval.

    Repeats of one task are not independent. The interval therefore takes the effective sample size
    (trials over the design effect, between the number of tasks and of trials) in place of the
    number of trials; with one repeat a task it is the plain Wilson interval.

    Source: E. L. Korn and B. I. Graubard, Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data, Survey Methodology 24 (1998); the
    variance of a ratio over clusters is W. G. Cochran, Sampling Techniques (1977), 9A.
    """
    used = [(hits, trials) for hits, trials in clusters if trials > 0]
    hits, trials = sum(pair[0] for pair in used), sum(pair[1] for pair in used)
    if not trials:
        return Estimate(0.0, 0.0, 1.0, 0)
    share = hits / trials
    size = trials / _design_effect(used, share, trials)
    size = max(float(len(used)), min(float(trials), size))
    low, high = wilson_interval(share * size, size, confidence)
    return Estimate(share, low, high, len(used))


def _design_effect(clusters: Sequence[Tuple[int, int]], share: float, trials: int) -> float:
    """The variance over clusters, over the variance that independent trials would have."""
    count = len(clusters)
    independent = share * (1 - share) / trials
    if count < 2 or independent == 0:
        return trials / count
    residuals = sum((hits - share * size) ** 2 for hits, size in clusters)
    between = residuals * count / ((count - 1) * trials * trials)
    return max(between / independent, 1e-12)


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile at ``share`` (0 to 1), interpolated linearly between the closest ranks.

    Source: R. J. Hyndman and Y. Fan, Sample quantiles in statistical packages, The American
    Statistician 50 (1996), definition 7.

    Raises:
        ValueError: There are no values, or ``share`` is outside 0 to 1.
    """
    if not values or not 0 <= share <= 1:
        raise ValueError("A percentile needs values and a share between 0 and 1.")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def bootstrap_mean(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean with its percentile bootstrap interval; above 500 values the normal interval.

    Source: B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; the
    normal interval is its limit (central limit theorem).
    """
    if not values:
        return Estimate(0.0, 0.0, 0.0, 0)
    mean = math.fsum(values) / len(values)
    if len(set(values)) == 1:
        return Estimate(mean, mean, mean, len(values))
    if len(values) > BOOTSTRAP_LIMIT:
        return _normal_mean(values, mean, confidence)
    means = _resampled_means(values, resamples, seed)
    tail = (1 - confidence) / 2
    low, high = percentile(means, tail), percentile(means, 1 - tail)
    return Estimate(mean, low, high, len(values))


def paired_bootstrap(
    baseline: Sequence[float],
    candidate: Sequence[float],
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """The mean of candidate minus baseline over paired values, with its bootstrap interval.

    Source: as ``bootstrap_mean``, on the differences: Efron and Tibshirani (1993), 8.3.

    Raises:
        ValueError: The two sequences differ in length.
    """
    if len(baseline) != len(candidate):
        raise ValueError("Paired values must come in equal numbers.")
    differences = [new - old for old, new in zip(baseline, candidate)]
    return bootstrap_mean(differences, confidence, seed=seed)


def mcnemar_exact(only_baseline: int, only_candidate: int) -> float:
    """The two-sided p value of the exact McNemar test.

    Args:
        only_baseline: Pairs that passed in the baseline alone.
        only_candidate: Pairs that passed in the candidate alone.

    Source: Q. McNemar, Note on the sampling error of the difference between correlated
    proportions, Psychometrika 12 (1947), in its exact binomial form.
    """
    return _binomial_half(only_baseline, only_candidate)


def paired_proportions(
    both: int, lost: int, won: int, neither: int, confidence: float = CONFIDENCE
) -> Estimate:
    """The change of a pass rate over pairs with its interval.

    The interval spans Newcombe's and the one that inverts the exact McNemar test (Clopper and
    Pearson's for the share of won among the changed pairs, scaled to all pairs). The second alone
    would take the number of changed pairs as given; the first alone can exclude 0 where the exact
    test does not reject.

    Args:
        both: Pairs that passed in both runs.
        lost: Pairs that passed in the baseline alone.
        won: Pairs that passed in the candidate alone.
        neither: Pairs that passed in neither.

    Source: R. G. Newcombe, Improved confidence intervals for the difference between binomial
    proportions based on paired data, Statistics in Medicine 17 (1998), method 10; C. J. Clopper and
    E. S. Pearson, Biometrika 26 (1934), applied as in A. Agresti, Categorical Data Analysis (2002),
    10.1.
    """
    pairs = both + lost + won + neither
    if not pairs:
        return Estimate(0.0, -1.0, 1.0, 0)
    low, high = _newcombe(both, lost, won, neither, confidence)
    changed = lost + won
    if changed:
        shares = clopper_pearson(won, changed, confidence)
        scale = changed / pairs
        low, high = min(low, (2 * shares[0] - 1) * scale), max(high, (2 * shares[1] - 1) * scale)
    return Estimate((won - lost) / pairs, low, high, pairs)


def _newcombe(
    both: int, lost: int, won: int, neither: int, confidence: float
) -> Tuple[float, float]:
    pairs = both + lost + won + neither
    before, after = (both + lost) / pairs, (both + won) / pairs
    before_low, before_high = wilson_interval(both + lost, pairs, confidence)
    after_low, after_high = wilson_interval(both + won, pairs, confidence)
    link = _association(both, lost, won, neither)
    down, up = after - after_low, before_high - before
    low = after - before - math.sqrt(max(0.0, down**2 - 2 * link * down * up + up**2))
    down, up = before - before_low, after_high - after
    high = after - before + math.sqrt(max(0.0, down**2 - 2 * link * down * up + up**2))
    return (low, high)


def _association(both: int, lost: int, won: int, neither: int) -> float:
    """The phi coefficient, corrected for continuity as method 10 asks."""
    margins = (both + lost) * (won + neither) * (both + won) * (lost + neither)
    if not margins:
        return 0.0
    cross = float(both * neither - lost * won)
    if cross > 0:
        cross = max(0.0, cross - (both + lost + won + neither) / 2)
    return cross / math.sqrt(margins)


def clopper_pearson(
    successes: int, trials: int, confidence: float = CONFIDENCE
) -> Tuple[float, float]:
    """The exact interval of a proportion.

    Source: Clopper and Pearson (1934), as named in ``paired_proportions``.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else 1 - _upper_limit(trials - successes, trials, tail)
    high = 1.0 if successes == trials else _upper_limit(successes, trials, tail)
    return (low, high)


def sign_test(differences: Sequence[float]) -> float:
    """The two-sided p value of the sign test; differences of zero are left out.

    Source: W. J. Dixon and A. M. Mood, The statistical sign test, JASA 41 (1946).
    """
    below = sum(1 for value in differences if value < 0)
    above = sum(1 for value in differences if value > 0)
    return _binomial_half(below, above)


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """The chance that at least one of ``k`` tries passes, estimated without bias.

    Source: M. Chen et al., Evaluating large language models trained on code (2021),
    arXiv:2107.03374, equation 1.

    Raises:
        ValueError: ``k`` is below 1 or above ``trials``, or ``passed`` is outside 0 to ``trials``.
    """
    _check_tries(trials, passed, k)
    return 1 - math.comb(trials - passed, k) / math.comb(trials, k)


def pass_hat_k(trials: int, passed: int, k: int) -> float:
    """The chance that all of ``k`` tries pass (pass^k), estimated without bias.

    Source: S. Yao et al., tau-bench: A benchmark for tool-agent-user interaction in real-world
    domains (2024), arXiv:2406.12045, section 3.

    Raises:
        ValueError: As ``pass_at_k``.
    """
    _check_tries(trials, passed, k)
    return math.comb(passed, k) / math.comb(trials, k)


def _check_tries(trials: int, passed: int, k: int) -> None:
    if not 1 <= k <= trials or not 0 <= passed <= trials:
        raise ValueError("k must lie within 1 to the tries of a task, and passed within 0 to them.")


def _binomial_half(first: int, second: int) -> float:
    """Two-sided exact p value of a fair coin that fell ``first`` times one way, else the other."""
    total, tail, ways = first + second, 0, 1
    for hits in range(min(first, second) + 1):
        tail += ways
        ways = ways * (total - hits) // (hits + 1)
    # the quotient of two integers stays exact where 0.5 ** total would vanish
    return min(1.0, 2 * tail / (1 << total))


def _upper_limit(successes: int, trials: int, tail: float) -> float:
    """The share at which ``successes`` or fewer of ``trials`` have the probability ``tail``."""
    low, high = successes / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _beta_share(trials - successes, successes + 1, 1 - middle) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_share(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b): a sum of binomial chances, fast.

    Source: NIST Digital Library of Mathematical Functions, 8.17.5 and 8.17.22 (continued fraction),
    evaluated by the method of Lentz.
    """
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, 1 - x)
    if x <= 0:
        return 0.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x)) / a
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, 10_000):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        lower = 1 / _not_zero(1 + term * lower)
        upper = _not_zero(1 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return front / value


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _normal_mean(values: Sequence[float], mean: float, confidence: float) -> Estimate:
    count = len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    spread = _z(confidence) * math.sqrt(variance / count)
    return Estimate(mean, mean - spread, mean + spread, count)


def _resampled_means(values: Sequence[float], resamples: int, seed: int) -> List[float]:
    import random

    draw = random.Random(seed).choices
    count = len(values)
    return [sum(draw(values, k=count)) / count for _ in range(resamples)]


def _z(confidence: float) -> float:
    from statistics import NormalDist  # loads decimal and fractions, which an import must not

    return NormalDist().inv_cdf(0.5 + confidence / 2)
