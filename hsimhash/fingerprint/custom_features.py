"""Weighted features supplied by the caller, such as features of images or words from another segmenter.

In JSON, features are an object such as `{"cat": 0.9, "dog": 2}`, or an array. The elements of an array are names,
numbers that serve as their own hashes, or `[name, weight]` pairs. The default weight is 1.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Mapping

from hsimhash.fingerprint.bits import LIMIT
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.recipe import Recipe
from hsimhash.fingerprint.vote import EXACT_LIMIT, SCALE

MOST_FEATURES = 1 << 20  # limit per document in JSON; that many take 2 s and 300 MiB

OwnFeatures = Mapping[str | int, float] | Iterable[tuple[str | int, float]]


def weighted_hashes(recipe: Recipe, features: OwnFeatures) -> dict[int, float]:
    """Return the weights by hash. Weights of repeated features add up; features of weight 0 are omitted.

    Raises:
        ValueError: a weight or a number is out of range.
    """
    summed: dict[int, float] = {}
    for feature, weight in features.items() if isinstance(features, Mapping) else features:
        hashed = _hash(recipe, feature)
        if weight == 0:
            continue
        summed[hashed] = summed.get(hashed, 0) + _weight(feature, weight, in_steps=not recipe.is_plain)
    if sum(summed.values()) >= EXACT_LIMIT:
        raise ValueError(
            f"the weights of the features sum to over {EXACT_LIMIT // SCALE}; divide all of them by the same number"
        )
    return summed


def features_in(value: object) -> list[tuple[str | int, float]]:
    """Return the weighted features in a JSON value; raise `ValueError` for other values."""
    if isinstance(value, Mapping | list) and len(value) > MOST_FEATURES:
        raise ValueError(f"document has {len(value):,} features: expected at most {MOST_FEATURES:,}")
    if isinstance(value, Mapping):
        return [_pair([name, weight]) for name, weight in value.items()]
    if not isinstance(value, list):
        raise ValueError(
            'invalid features: expected an object {"name": weight}, or an array of names, numbers or [name, weight]'
        )
    return [_pair(one if isinstance(one, list) else [one, 1]) for one in value]


def parsed_features(text: str) -> list[tuple[str | int, float]]:
    """Return the features in a JSON text, or an empty list for a blank text; raise `ValueError` for other JSON."""
    try:
        return features_in(json.loads(text)) if text.strip() else []
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"invalid features {text[:40]!r}: expected JSON") from error


def _pair(one: list[object]) -> tuple[str | int, float]:
    feature, weight = one if len(one) == 2 else (None, None)
    is_feature = isinstance(feature, str | int) and not isinstance(feature, bool)
    if not (is_feature and isinstance(weight, int | float) and not isinstance(weight, bool)):
        raise ValueError(f"invalid feature {one!r:.80}: expected [name, weight]")
    return feature, weight  # type: ignore[return-value]  # both types were checked above


def _hash(recipe: Recipe, feature: str | int) -> int:
    if isinstance(feature, str):
        return HASHES[recipe.hash].one(feature.encode(), recipe.seed)
    number = operator.index(feature)
    if not 0 <= number < LIMIT:
        raise ValueError(f"a feature must be a string, or a number from 0 to 2**64 - 1, got {feature!r}")
    return number


def _weight(feature: str | int, weight: float, *, in_steps: bool) -> float:
    if not (weight * SCALE >= 1 and weight < math.inf):  # an int may exceed any float
        raise ValueError(f"invalid weight {weight!r:.40} of feature {feature!r:.80}: expected 0, or at least 1/{SCALE}")
    return round(weight * SCALE) if in_steps else weight
