"""The words that the rooms exchange can't be changed by whoever gets them."""

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from inspect import getmembers, isclass

import pytest

import reclaimerd.model

_MODULES = sorted(module.name for module in pkgutil.iter_modules(reclaimerd.model.__path__))


def _values(name: str) -> list[type]:
    """Return the dataclasses that one module defines itself."""
    module = importlib.import_module(f"reclaimerd.model.{name}")
    return [
        kind
        for _, kind in getmembers(module, isclass)
        if is_dataclass(kind) and kind.__module__ == module.__name__
    ]


@pytest.mark.parametrize("name", _MODULES)
def test_every_value_of_the_model_is_frozen_and_slotted(name: str) -> None:
    """Nothing can be set on one, neither a field nor anything new."""
    for kind in _values(name):
        assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"  # type: ignore[attr-defined]
        assert hasattr(kind, "__slots__"), f"{kind.__name__} has no slots"


@pytest.mark.parametrize("name", _MODULES)
def test_no_default_is_shared_and_mutable(name: str) -> None:
    """A default that could be changed would be every value's."""
    for kind in _values(name):
        for field in fields(kind):
            assert not isinstance(field.default, (list, dict, set)), f"{kind.__name__}.{field.name}"


def test_the_model_is_not_empty() -> None:
    """The two tests above looked at something."""
    assert sum(len(_values(name)) for name in _MODULES) > 40
