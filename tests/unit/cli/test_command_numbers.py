"""Numbers of options that are not valid: the message says what to write."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("30%", "'30%' is not a share from 0 to 1: write 30% as 0.3."),
        ("30", "'30' is not a share from 0 to 1: write 30% as 0.3."),
        ("2.5%", "write 2.5% as 0.025"),
        ("a third", "'a third' is not a number."),
        ("nan", "'nan' is not a number."),
        ("%", "'%' is not a number."),
        ("-0.5", "-0.5 is not in the range 0<=x<=1."),
    ],
)
@pytest.mark.parametrize("command", [("topology", "apply", "f"), ("ring", "repair", "o")])
def test_a_share_out_of_range_is_refused_with_the_share_that_was_meant(
    ran: Callable[..., tuple[int, str, str]], command: tuple[str, ...], value: str, says: str
) -> None:
    code, out, errors = ran(*command, "--allow-moved", value)
    assert (code, out) == (2, "")
    assert says in errors


@pytest.mark.parametrize("value", ["5%", "soon"])
def test_a_time_is_not_a_share(ran: Callable[..., tuple[int, str, str]], value: str) -> None:
    assert f"{value!r} is not a number." in ran("ring", "check", "o", "--wait", value)[2]
