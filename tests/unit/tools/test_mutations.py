"""The mutants: each changes one thing, and texts, annotations and log calls stay as they are."""

from __future__ import annotations

import ast

import mutations

TEXT = '''
LIMIT = 5

@cache(size=3)
def first(values: list[int], most: int = 7) -> int:
    """Add 1."""
    log.debug("value %d", 1)
    if not values and most > LIMIT:
        raise ValueError(f"no {most + 1} values")
    return sum(value for value in values if value != 0)


class Queue:
    def close(self):
        self.open = False
'''


def test_each_mutant_changes_one_thing() -> None:
    assert [
        (mutant.line, mutant.function, mutant.change) for mutant in mutations.mutants_of("a.py", TEXT)
    ] == [
        (8, "first", "if not values and most > LIMIT:  ->  if not (not values and most > LIMIT):"),
        (8, "first", "not values and most > LIMIT  ->  not values or most > LIMIT"),
        (8, "first", "most > LIMIT  ->  most >= LIMIT"),
        (9, "first", "raise ValueError(f'no {most + 1} values')  ->  pass"),
        (10, "first", "return sum((value for value in values if value != 0))  ->  return None"),
        (10, "first", "for value in values if value != 0  ->  for value in values"),
        (10, "first", "value != 0  ->  value == 0"),
        (10, "first", "0  ->  1"),
        (15, "Queue.close", "False  ->  True"),
    ]


def test_the_code_of_a_mutant_is_the_text_with_its_change() -> None:
    before = ast.unparse(ast.parse(TEXT)).splitlines()
    for mutant in mutations.mutants_of("a.py", TEXT):
        after = ast.unparse(mutations.mutated(TEXT, mutant.place)).splitlines()
        assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] != []
        assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_the_name_of_a_mutant_stays_when_another_function_changes() -> None:
    other = TEXT.replace("    log.debug", "    assert len(values) < 100\n    log.debug")
    names = [mutant.name for mutant in mutations.mutants_of("a.py", TEXT)]
    assert names[0] == "a.py:first:1"
    assert names[-1] == "a.py:Queue.close:1"
    assert [mutant.name for mutant in mutations.mutants_of("a.py", other)][-1] == names[-1]


def test_each_survivor_has_a_reason() -> None:
    survivors = {result.mutant for result in mutations.results() if not result.killers}
    assert mutations.reasons_of_survivors().keys() == survivors
