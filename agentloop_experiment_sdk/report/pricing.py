"""What a run cost: token prices per model, checked, and multiplied."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import ConfigurationError
from .measures import Tokens

Prices = Mapping[str, Tuple[float, float]]

ANY_MODEL = "*"
_MILLION = 1_000_000


@dataclass(frozen=True)
class Cost:
    """What tokens cost, in the currency of the prices.

    ``unpriced`` names models without a price: the true cost is higher than ``amount``.
    """

    amount: float
    by_model: Mapping[str, float]
    unpriced: Tuple[str, ...] = ()


def cost_of(tokens: Mapping[str, Tokens], prices: Prices) -> Cost:
    """The cost of ``tokens``.

    Args:
        tokens: Model name to its tokens.
        prices: Model name to (input, output) price **per million tokens**; ``"*"`` prices every
            model that has no entry of its own.

    Raises:
        ConfigurationError: ``prices`` is not of that form.
    """
    checked = check_prices(prices)
    by_model: Dict[str, float] = {}
    unpriced = []
    for model, used in tokens.items():
        price = checked.get(model, checked.get(ANY_MODEL))
        if price is None:
            unpriced.append(model)
        else:
            parts = (_amount(used.input, price[0]), _amount(used.output, price[1]))
            by_model[model] = sum(parts) / _MILLION
    return Cost(math.fsum(by_model.values()), by_model, tuple(unpriced))


def _amount(count: int, price: float) -> float:
    try:
        return count * price
    except OverflowError:  # no float holds the number that the agent reported
        return math.inf if price else 0.0


def check_prices(prices: Any) -> Dict[str, Tuple[float, float]]:
    """``prices`` as floats.

    Raises:
        ConfigurationError: It is no mapping of model to two finite numbers of at least 0.
    """
    if not isinstance(prices, Mapping):
        raise _bad_prices(prices)
    return {str(model): _pair(prices, model) for model in prices}


def _pair(prices: Mapping[Any, Any], model: Any) -> Tuple[float, float]:
    pair = prices[model]
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise _bad_prices({model: pair})
    numbers = [_price(value) for value in pair]
    if numbers[0] is None or numbers[1] is None:
        raise _bad_prices({model: pair})
    return (numbers[0], numbers[1])


def _price(value: Any) -> Optional[float]:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if usable and 0 <= value < math.inf else None


def _bad_prices(given: Any) -> ConfigurationError:
    return ConfigurationError(
        "prices must map a model to (input, output) prices per million tokens, such as "
        "{{'qwen-max': (2.4, 9.6)}}; got {!r}.".format(given)
    )
