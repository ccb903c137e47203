"""The examples in the documentation of every function run and give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import thera.evaluation

MODULES = [module.name for module in pkgutil.iter_modules(thera.evaluation.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(f"thera.evaluation.{name}")
    failed, _ = doctest.testmod(module)
    assert failed == 0
