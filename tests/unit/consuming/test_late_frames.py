"""What aiormq logs about frames of a channel that the group has ended."""

from __future__ import annotations

import logging

import pytest

from rabbit_chx.consuming.channels import LateFrames


def test_only_the_frames_of_channels_that_were_ended_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("aiormq.connection")
    late = LateFrames()
    late.expect(7)
    logger.error("Got frame for closed channel %d: %r", 7, "deliver")
    logger.error("Got frame for closed channel %d: %r", 8, "deliver")
    logger.error("Unexpected frame %r", 7)
    late.end()
    logger.error("Got frame for closed channel %d: %r", 7, "later")
    assert [record.getMessage() for record in caplog.records] == [
        "Got frame for closed channel 8: 'deliver'",
        "Unexpected frame 7",
        "Got frame for closed channel 7: 'later'",
    ]
