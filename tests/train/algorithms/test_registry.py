"""Methods by name: built in, registered, or named as module:Class."""

import pytest

from vinejax.config import ALGORITHMS, ConfigError
from vinejax.train import algorithms
from vinejax.train.algorithms.base import Algorithm
from vinejax.train.algorithms.rloo import RLOO


class Mine(Algorithm):
    """A method."""

    def learn(self, iteration, batch, weights, clock):
        return {}, []


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(algorithms, "_ALGORITHMS", dict(algorithms._ALGORITHMS))


def test_every_method_that_a_configuration_may_name_is_there():
    assert set(algorithms.names()) == set(ALGORITHMS)
    assert all(issubclass(algorithms.get(name), Algorithm) for name in ALGORITHMS)


def test_a_class_may_be_named_without_registration():
    assert algorithms.get("vinejax.train.algorithms.rloo:RLOO") is RLOO


def test_a_registered_class_has_a_name(table):
    algorithms.register("mine", Mine)
    assert algorithms.get("mine") is Mine
    assert "mine" in algorithms.names()
    algorithms.register("mine", Mine)  # once more is no error
    with pytest.raises(ConfigError, match="a method 'mine' already"):
        algorithms.register("mine", RLOO)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rlo", "did you mean rloo"),
        ("no_such_module:Mine", "cannot import 'no_such_module:Mine'"),
        ("vinejax.train.algorithms.rloo:Other", "cannot import"),
        ("vinejax.config:Config", "no subclass of algorithms.base.Algorithm"),
    ],
)
def test_what_is_no_method_is_refused(name, words):
    with pytest.raises(ConfigError, match=words):
        algorithms.get(name)
    with pytest.raises(ConfigError, match="no subclass"):
        algorithms.register("int", int)  # type: ignore[arg-type]
