"""Texts with commands and arguments: the library speaks Python, and the command line replaces the words.

That no text of the product has a command is shown in `packaging/test_messages.py`.
"""

from __future__ import annotations

import copy
import pickle

import pytest

from rabbit_chx.cli.printed import in_words
from rabbit_chx.errors import InputError, PlanRefusedError
from rabbit_chx.fixes import Argument, CommandLine, Fix, joined

_COMPARE = CommandLine("compare", "simulate(ring)", ("my x",), (Argument("to", "a b"),))
_FIX = Fix("run: ", _COMPARE, "; or allow it with ", Argument("allow_moved", 0.25))


def test_a_fix_is_a_text_in_the_words_of_python() -> None:
    assert _FIX == "run: simulate(ring); or allow it with allow_moved=0.25"
    assert str(InputError(_FIX)) == _FIX
    assert str(Argument("hand_over", "parked")) == "hand_over='parked'"
    assert str(Argument("allow_loss")) == "allow_loss=True"


def test_the_command_line_has_its_own_words() -> None:
    says = "run: rabbit-chx compare 'my x' --to 'a b'; or allow it with --allow moved=0.25"
    assert in_words(_FIX) == says
    assert in_words(Fix("first: ", _FIX, ".")) == f"first: {says}."
    assert in_words(joined("; ", ["no", _FIX])) == f"no; {says}"
    assert in_words("plain") == "plain"
    output = Fix(CommandLine("export", "to_toml()", output="the x.toml"))
    assert in_words(output) == "rabbit-chx export > 'the x.toml'"
    assert in_words(_FIX.with_option(Argument("vhost", "my v"))) == says.replace(
        "a b'", "a b' --vhost 'my v'"
    )
    assert joined("; ", []) == ""


@pytest.mark.parametrize("error", [InputError(_FIX), PlanRefusedError(Fix("refused: ", _FIX), [])])
def test_an_error_keeps_the_words_of_its_message(error: Exception) -> None:
    for other in (error, copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own
        assert "rabbit-chx compare" in in_words(str(other))
        assert str(other) == str(error)


def test_another_program_may_format_the_text_of_an_error_and_our_code_may_not() -> None:
    fix = Fix("allow it with ", Argument("allow_delete"))
    assert f"{fix}" == "allow it with allow_delete=True"
    with pytest.raises(AssertionError, match="loses the commands"):
        eval('f"{fix}"', {"__name__": "rabbit_chx.made_up", "fix": fix})  # noqa: S307  # our own code
