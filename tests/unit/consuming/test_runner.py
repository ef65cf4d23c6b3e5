"""What an error of a connection does to a member that calls it: the session ends with it, and a member that leaves ignores it.

`test_channels.py` has the errors of the client library, and `test_group.py` the next session.
"""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest
from scripted_group import ScriptedStage

from rabbit_chx.errors import ConnectionLostError

GONE = AsyncMock(side_effect=ConnectionLostError("gone"))


@pytest.mark.parametrize("call", ["read_journal", "publish", "consume_behind", "abandon"])
async def test_an_error_of_a_call_ends_the_session(call: str) -> None:
    stage = ScriptedStage()
    setattr(stage.connection, call, GONE)
    async with stage.running() as running:
        if call == "abandon":
            await stage.consuming()
            stage.runners[0].execute(stage.runners[0].ownership.step_back())
        with pytest.raises(ConnectionLostError, match="gone"):
            await running
        assert stage.session.is_lost


@pytest.mark.parametrize("call", ["publish", "abandon"])
async def test_a_member_that_leaves_ignores_an_error_of_a_call(call: str) -> None:
    stage = ScriptedStage()
    async with stage.running() as running:
        await stage.consuming()
        line = await stage.owned()
        stage.stop.set()
        await running
        setattr(stage.connection, call, GONE)
        line.abandon = GONE  # type: ignore[method-assign]
        await stage.session.leave()
        await stage.session.close([line])  # type: ignore[list-item]
    assert stage.connection.is_closed
