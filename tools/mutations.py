"""Which unit tests notice a small change of the code: `make long WHAT=mutations`.

A mutant is the product with one operator, constant or statement changed. Each runs in a forked process, against the tests that
execute its line, without stopping at the first failure: so the result tells which tests fail for which mutants, and which tests fail
for no mutant at all. A test that runs the product in another process is not seen to execute any line.

    python tools/mutations.py cover         the lines that each test executes: build/mutations/tests.json
    python tools/mutations.py run           runs --mutants mutants, and stores the tests that each fails in tests/mutants/results.json
    python tools/mutations.py show          prints the table of tests/README.md, and what tests/mutants/survivors.toml has too little or too much

`run` takes over a stored result if the mutant is the same and one of the tests that failed still exists. A run that is ended goes on where
it was: its results are in build/mutations/results.jsonl.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests" / "mutants" / "results.json"
#: The reason why no unit test has to fail, for each mutant that survives.
SURVIVORS = ROOT / "tests" / "mutants" / "survivors.toml"
RUNNING = ROOT / "build" / "mutations" / "results.jsonl"
TESTS = ROOT / "build" / "mutations" / "tests.json"
PACKAGES = (
    "rabbit_chx/routing",
    "rabbit_chx/topology",
    "rabbit_chx/publishing",
    "rabbit_chx/consuming",
    "rabbit_chx/streams",
    "spark_connector",
)
FOLDERS = ("tests/unit", "tests/models", "tests/simulation")
#: Time of the tests of one mutant, as `cover` measured it: the tests that execute the fewest lines are taken first, since they are the most
#: specific ones.
SECONDS_OF_TESTS = 8.0
#: A mutant may loop for ever. Then its tests are ended, and it counts as noticed by the one that ran.
FACTOR_OF_TIME, SECONDS_MORE = 2.0, 15.0
MEMORY = 4 << 30

_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip


# --- mutants: pure -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    `number` counts the changes of the function, `place` those of the file; `change` is the code before and after.
    """

    path: str
    function: str
    number: int
    change: str
    line: int
    place: int

    @property
    def name(self) -> str:
        """What stays the same when other functions change."""
        return f"{self.path}:{self.function}:{self.number}"


@dataclass(frozen=True)
class Result:
    """The tests that fail for a mutant; `tests` is how many ran."""

    mutant: str
    line: int
    change: str
    tests: int
    killers: list[str]


_Undo = Callable[[], None]


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """Yield each mutant of a module: changes inside of functions, not of texts, annotations, decorators and log calls."""
    numbers: Counter[str] = Counter()
    for place, (function, node, change) in enumerate(_changes(ast.parse(text))):
        before, line = _shown(node), _line_of(node)
        undo = change()
        after = _shown(node)
        undo()
        numbers[function] += 1
        if before != after:
            yield Mutant(path, function, numbers[function], f"{before}  ->  {after}", line, place)


def mutated(text: str, place: int) -> ast.Module:
    """Return the tree of a module with one change."""
    tree = ast.parse(text)
    _, _, change = _changes(tree)[place]
    change()
    return ast.fix_missing_locations(tree)


def _shown(node: ast.AST) -> str:
    lines = [line.strip() for line in ast.unparse(node).splitlines()]
    return lines[0] if isinstance(node, ast.If | ast.While) else " ".join(lines)


def _line_of(node: Any) -> int:
    return int(node.target.lineno if isinstance(node, ast.comprehension) else node.lineno)


def _changes(tree: ast.Module) -> list[tuple[str, Any, Callable[[], _Undo]]]:
    """Return (function, node, what changes it and returns what undoes that) for each change, in the order of the text."""
    return [
        (names, node, change)
        for function, names in _functions(tree)
        for statement in (function.body[1:] if ast.get_docstring(function) is not None else function.body)
        for node in _inner(statement)
        for change in _changes_of(node)
    ]


def _functions(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[Any, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, ".".join((*names, child.name))
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*names, child.name))
        elif isinstance(child, ast.If):
            yield from _functions(child, names)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the nodes below it that are run, in the order of the text."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and _is_log(node.value)):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _inner(child)


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and "log" in ast.unparse(node.func).lower().split(".")[0]


def _changes_of(node: Any) -> Iterator[Callable[[], _Undo]]:
    match node:
        case ast.Compare(ops=ops) if type(ops[0]) in _COMPARISONS:
            yield _with(node, "ops", [_COMPARISONS[type(ops[0])](), *ops[1:]])
        case ast.BoolOp(op=op):
            yield _with(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS and not _has_text(node):
            yield _with(node, "op", _OPERATORS[type(op)]())
        case ast.Constant(value=bool(value)):
            yield _with(node, "value", not value)
        case ast.Constant(value=int(value)):
            yield _with(node, "value", value + 1)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _with(node, "value", ast.Constant(None))
        case (
            ast.Raise()
            | ast.Expr(value=ast.Call() | ast.Await())
            | ast.Delete()
            | ast.Continue()
            | ast.Break()
        ):
            yield _replaced(node)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(
            test, ast.Compare
        ):
            yield _with(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=ifs) if ifs:
            yield _with(node, "ifs", ifs[1:])
        case _:
            return


def _has_text(node: Any) -> bool:
    """Tell whether an operator joins or formats texts: no other operator can stand there."""
    sides = (getattr(node, "left", node), getattr(node, "right", node))
    return any(
        isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str | bytes)
        for side in sides
    )


def _with(node: Any, field: str, value: object) -> Callable[[], _Undo]:
    def change() -> _Undo:
        before = getattr(node, field)
        setattr(node, field, value)
        return lambda: setattr(node, field, before)

    return change


def _replaced(node: Any) -> Callable[[], _Undo]:
    """Change a statement into `pass`, by its class: its parent need not be known."""

    def change() -> _Undo:
        kind, fields = type(node), dict(node.__dict__)
        node.__class__ = ast.Pass

        def undo() -> None:
            node.__class__ = kind
            node.__dict__.update(fields)

        return undo

    return change


# --- runs: each in a forked process --------------------------------------------------------------------------------------------


_Functions = Mapping[tuple[str, str, int], list[FunctionType]]


def _functions_of_the_product() -> _Functions:
    """Return all functions that exist of our packages, by file, name and line."""
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename.startswith(str(ROOT)):
            code = function.__code__
            found[code.co_filename, code.co_name, code.co_firstlineno].append(function)
    return found


def _mutate(mutant: Mutant, functions: _Functions) -> None:
    """Give each function of the mutant's code that exists its changed code, and change what is imported later.

    What ran when the tests were collected, such as tables of a module, is not changed.
    """
    file, load = str(ROOT / mutant.path), SourceFileLoader.get_code
    tree = mutated(Path(file).read_text(encoding="utf-8"), mutant.place)
    changed: CodeType = compile(tree, file, "exec", dont_inherit=True)

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return changed if loader.get_filename(name) == file else load(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    for code in _codes(changed, mutant.function.split(".")):
        for function in functions.get((file, code.co_name, code.co_firstlineno), ()):
            function.__code__ = code.replace(co_freevars=function.__code__.co_freevars)


def _codes(code: CodeType, names: list[str]) -> Iterator[CodeType]:
    """Yield the code of each function with these names, from the outside to the inside."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_name == names[0]:
            if names[1:]:
                yield from _codes(inner, names[1:])
            else:
                yield inner


class _Outcomes:
    """A pytest plugin: tells the outcome and the duration of each test as it ends, and covers lines by test if it is asked to."""

    def __init__(self) -> None:
        self.tell: Callable[[str], object] = str
        self.coverage: Any = None
        self._failed = False
        self._seconds = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._failed, self._seconds = False, 0.0
        self.tell(json.dumps({"began": nodeid}))
        if self.coverage is not None:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed |= report.failed
        self._seconds += report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tell(json.dumps({"test": nodeid, "failed": self._failed, "seconds": round(self._seconds, 3)}))


class _Collected(_Outcomes):
    """A pytest plugin: instead of running the tests that were collected, calls a function with them."""

    def __init__(self, use: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._use = use

    def pytest_collection(self) -> None:
        """Let Hypothesis end at the first failure: to look for a smaller example may take minutes."""
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants",
            settings.get_profile("no deadline"),
            database=None,
            phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: Any) -> bool:
        self._use({item.nodeid: item for item in session.items})
        return True


def _run_forked(
    work: Callable[[Callable[[str], object]], None], seconds: float
) -> tuple[list[dict[str, Any]], str | None]:
    """Do work in a child; return the outcome of each test that ended, and the one that was running when the time was over."""
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        child = os.fork()
        if not child:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            _do(work, writer)
        os.close(writer)
        text, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
            if not (piece := os.read(reader, 1 << 16)):
                break
            text += piece
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    lines = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
    ended = [line for line in lines if "test" in line]
    begun = [line["began"] for line in lines if "began" in line]
    unfinished = begun[-1] if begun and begun[-1] not in {line["test"] for line in ended} else None
    return ended, unfinished


def _do(work: Callable[[Callable[[str], object]], None], writer: int) -> None:
    os.setsid()
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(silence, standard)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        work(lambda line: os.write(writer, (line + "\n").encode()))
    finally:
        os._exit(0)


def _pytest(tests: Iterable[str], plugin: _Outcomes) -> None:
    import pytest

    options = [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",  # of the libraries that the parent imported
        "-q",
        "--tb=no",
        "--capture=no",
        "--assert=plain",  # which would import our modules by its own loader
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not extended",
        "-o",
        "addopts=--import-mode=importlib",
    ]
    pytest.main([*options, *tests], plugins=[plugin])


def _import_libraries() -> None:
    """Import what the tests import, except our code: each child has it then."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in (
        "pytest",
        "hypothesis",
        "numpy",
        "pyarrow",
        "pyarrow.compute",
        "pandas",
        "pyspark.sql",
        "pika",
        "aio_pika",
        "click",
        "coverage",
    ):
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)


def _in_parallel(work: Callable[[Any], None], items: list[Any]) -> None:
    """Share the items among one process for each core: a process with threads must not fork."""
    cores = os.cpu_count() or 1
    children = []
    for core in range(cores):
        child = os.fork()
        if not child:
            code = 1
            try:
                for number, item in enumerate(items[core::cores], 1):
                    work(item)
                    if number % 25 == 0:
                        sys.stderr.write(
                            f"{time.strftime('%H:%M:%S')} process {core}: {number} of {len(items[core::cores])}\n"
                        )
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise SystemExit("a process failed: see its error above")


# --- commands ------------------------------------------------------------------------------------------------------------------


def cover() -> None:
    """Run each test file alone in a child, and store which tests execute which lines. A test that fails there is left out."""
    folder = TESTS.parent / "cover"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = sorted(path for top in FOLDERS for path in (ROOT / top).rglob("test_*.py"))

    def run(numbered: tuple[int, Path]) -> None:
        number, path = numbered

        def work(tell: Callable[[str], object]) -> None:
            from coverage import Coverage

            plugin = _Outcomes()
            plugin.tell = tell
            plugin.coverage = Coverage(
                data_file=str(folder / f"lines.{number}"),
                source=[str(ROOT / name) for name in PACKAGES],
                messages=False,
            )
            plugin.coverage.start()
            _pytest([str(path.relative_to(ROOT))], plugin)
            plugin.coverage.stop()
            plugin.coverage.save()

        ended, unfinished = _run_forked(work, 900)
        (folder / f"{number}.json").write_text(
            json.dumps({"file": str(path), "tests": ended, "unfinished": unfinished})
        )

    _in_parallel(run, list(enumerate(files)))
    _store_tests(folder)


def _store_tests(folder: Path) -> None:
    from coverage import CoverageData

    outcomes = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    ended = [test for outcome in outcomes for test in outcome["tests"]]
    seconds = {test["test"]: test["seconds"] for test in ended if not test["failed"]}
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in folder.glob("lines.*"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                lines[str(Path(file).relative_to(ROOT))][line].update(seconds.keys() & contexts)
    names = list(seconds)
    at = {name: number for number, name in enumerate(names)}
    stored = {
        file: {line: sorted(map(at.__getitem__, tests)) for line, tests in found.items() if tests}
        for file, found in sorted(lines.items())
    }
    TESTS.write_text(json.dumps({"tests": seconds, "lines": stored}))
    failed = [test["test"] for test in ended if test["failed"]] + [
        outcome["unfinished"] for outcome in outcomes if outcome["unfinished"]
    ]
    sys.stdout.write(
        f"{len(seconds)} tests in {sum(seconds.values()):.0f} s; {len(failed)} are left out, since they fail here: {' '.join(failed)}\n"
    )


class _Covered:
    """Which tests execute which lines, as `cover` stored it."""

    def __init__(self) -> None:
        known = json.loads(TESTS.read_text())
        self.seconds: dict[str, float] = known["tests"]
        self._names = list(self.seconds)
        self._lines: dict[str, dict[str, list[int]]] = known["lines"]
        self._breadth = Counter(
            test for lines in self._lines.values() for tests in lines.values() for test in tests
        )

    def tests_of(self, mutant: Mutant) -> set[str]:
        """Return the tests that execute the line of a mutant, the most specific ones, for a limited time."""
        chosen: set[str] = set()
        total = 0.0
        tests = self._lines.get(mutant.path, {}).get(str(mutant.line), [])
        for name in (self._names[test] for test in sorted(tests, key=self._breadth.__getitem__)):
            total += self.seconds[name]
            if chosen and total > SECONDS_OF_TESTS:
                break
            chosen.add(name)
        return chosen


def run(most: int) -> None:
    """Run mutants until there are results of this many of the present code, and store them."""
    covered, chosen = _Covered(), sample(most)

    def use(items: dict[str, Any]) -> None:
        functions = _functions_of_the_product()
        gc.collect()
        gc.freeze()  # else each child copies the memory of all objects when it collects garbage
        known = _known(items)
        missing = [mutant for mutant in chosen if (mutant.name, mutant.change) not in known]
        sys.stderr.write(f"{len(missing)} of {len(chosen)} mutants run\n")
        _in_parallel(partial(_attempt, plugin, covered, items, functions), missing)
        known = _known(items)
        _store([replace(known[mutant.name, mutant.change], line=mutant.line) for mutant in chosen])

    plugin = _Collected(use)
    RUNNING.parent.mkdir(parents=True, exist_ok=True)
    _pytest(FOLDERS, plugin)


def _known(items: Iterable[str]) -> dict[tuple[str, str], Result]:
    """Return the results that hold for the present tests, by mutant and change, without the tests that are gone."""
    names = {_without_parameter(item) for item in items}
    stored = {(result.mutant, result.change): result for result in results() if names & {*result.killers}}
    lines = RUNNING.read_text(encoding="utf-8").splitlines() if RUNNING.exists() else ()
    running = (Result(**json.loads(line)) for line in lines)
    known = stored | {(result.mutant, result.change): result for result in running}
    return {
        key: replace(result, killers=[name for name in result.killers if name in names])
        for key, result in known.items()
        if not result.killers or names & {*result.killers}
    }


def _without_parameter(test: str) -> str:
    return test.partition("[")[0]


def _attempt(
    plugin: _Outcomes, covered: _Covered, items: dict[str, Any], functions: _Functions, mutant: Mutant
) -> None:
    """Run the tests of a mutant, and add its result to the file."""
    chosen = covered.tests_of(mutant)
    tests = [name for name in items if name in chosen]

    def work(tell: Callable[[str], object]) -> None:
        plugin.tell = tell
        _mutate(mutant, functions)
        for name, after in zip(tests, [*tests[1:], None], strict=True):
            nextitem = None if after is None else items[after]
            items[name].config.hook.pytest_runtest_protocol(item=items[name], nextitem=nextitem)

    limit = sum(map(covered.seconds.__getitem__, tests)) * FACTOR_OF_TIME + SECONDS_MORE
    ended, unfinished = _run_forked(work, limit) if tests else ([], None)
    if tests and not ended and unfinished is None:  # or it would count as one that survives
        raise RuntimeError(f"no test of the mutant {mutant.name} began")
    killers = {test["test"] for test in ended if test["failed"]} | ({unfinished} if unfinished else set())
    result = Result(
        mutant.name, mutant.line, mutant.change, len(tests), sorted({*map(_without_parameter, killers)})
    )
    with RUNNING.open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(result)) + "\n")


def sample(most: int) -> list[Mutant]:
    """Choose mutants of all packages at random. A change of other code chooses nearly the same ones again."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    mutants = [
        mutant
        for path in files
        for mutant in mutants_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    return sorted(mutants, key=lambda mutant: sha256((mutant.name + mutant.change).encode()).digest())[:most]


def _store(found: Iterable[Result]) -> None:
    """Write the results; a test is named once, and is a number elsewhere."""
    ordered = sorted(found, key=lambda result: result.mutant)
    names = sorted({name for result in ordered for name in result.killers})
    at = {name: number for number, name in enumerate(names)}
    rows = [
        json.dumps(
            [result.mutant, result.line, result.change, result.tests, [at[name] for name in result.killers]]
        )
        for result in ordered
    ]
    lines = [
        '{"columns": ["mutant", "line", "change", "tests that run the line", "tests that fail"],',
        '"tests": [',
        ",\n".join(map(json.dumps, names)),
        "],",
        '"mutants": [',
        ",\n".join(rows),
        "]}",
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    RUNNING.unlink(missing_ok=True)


def results() -> list[Result]:
    """Read the stored results."""
    if not RESULTS.exists():
        return []
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    names = stored["tests"]
    return [
        Result(mutant, line, change, tests, [names[number] for number in killers])
        for mutant, line, change, tests, killers in stored["mutants"]
    ]


def reasons_of_survivors() -> dict[str, str]:
    """Read the reason why no unit test has to fail, for each mutant that survives."""
    return tomllib.loads(SURVIVORS.read_text(encoding="utf-8")) if SURVIVORS.exists() else {}


def table() -> str:
    """Return what tests/README.md shows: the mutants of each package, and how many of them fail a test."""
    rows = [
        "| package | mutants | fail a test | survive | no test runs the line | tests that fail for a mutant |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    found = results()
    for package in PACKAGES:
        own = [result for result in found if result.mutant.startswith(package + "/")]
        failed = sum(bool(result.killers) for result in own)
        unrun = sum(not result.tests for result in own)
        killers = {test for result in own for test in result.killers}
        rows.append(
            f"| `{package}` | {len(own):,} | {failed:,} | {len(own) - failed - unrun:,} | {unrun:,} | {len(killers):,} |"
        )
    return "\n".join(rows)


def show() -> None:
    """Print the table, each survivor without a reason, and each reason without a survivor."""
    reasons = reasons_of_survivors()
    survive = {result.mutant: result for result in results() if not result.killers}
    missing = [
        f"no reason: {result.mutant} (line {result.line}, {result.tests} tests): {result.change}"
        for name, result in survive.items()
        if name not in reasons
    ]
    over = [f"not a survivor: {name}" for name in reasons.keys() - survive.keys()]
    sys.stdout.write("\n".join([table(), "", *missing, *sorted(over), ""]))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("cover", "run", "show"))
    parser.add_argument("--mutants", type=int, default=1500)
    given = parser.parse_args()
    os.chdir(ROOT)
    if given.command == "cover":
        _import_libraries()
        cover()
    elif given.command == "run":
        run(given.mutants)
    else:
        show()


if __name__ == "__main__":
    main()
