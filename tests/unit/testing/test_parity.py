"""`assert_parity` without what it needs."""

from __future__ import annotations

import pytest

from rabbit_chx import Topology
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker, assert_parity, containers

WITHOUT_MANAGEMENT = RunningBroker("amqp://127.0.0.1:1", None, "4.3.6", None, "a broker without the HTTP API")


def test_where_chx_vhost_is_not_run_parity_is_not_run_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(containers, "broker_of_test", WITHOUT_MANAGEMENT)
    with pytest.raises(
        pytest.skip.Exception, match="rabbit_chx: a vhost can only be made through the HTTP API"
    ):
        assert_parity(Topology(), ["a"])
    monkeypatch.setattr(containers, "broker_of_test", None)
    with pytest.raises(InputError, match="a vhost can only be made through the HTTP API"):
        assert_parity(Topology(), ["a"], broker=WITHOUT_MANAGEMENT)
