"""Show where the time of each path goes: Spark and Arrow, our code, the socket, and waiting for the broker.

A thread looks at the stacks of all threads about 200 times a second. A moment belongs to our code if one thread is in it, else to the socket, else
to the program, else to waiting. In Spark, each Python worker has this thread; what is not in our code, at the socket or waiting
for the broker is Spark and Arrow. Functions of NumPy and pyarrow have no frames: they are part of the code that calls them.

    python bench/profile.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from itertools import chain, count
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import TypeAlias

if __name__ == "profile":  # `cProfile`, which PySpark imports, means the standard library's
    spec = PathFinder.find_spec(__name__, [sysconfig.get_path("stdlib")])
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(sys.modules[__name__])

FOLDER = "RABBIT_CHX_PROFILE"
EVERY_S, WRITE_S = 0.005, 0.1
SPARK, OURS, SOCKET, PROGRAM, WAITING = "Spark and Arrow", "our code", "socket", "program", "waiting"
OUR_FILES = ("/rabbit_chx/", "/spark_connector/")
SPARK_FILES = ("/pyspark/", "/py4j/", "/pyarrow/", "/pandas/")
#: The functions that call the system, of `blocking_connection.py`.
SOCKET_FILE, SOCKET_CALLS, WAIT_CALLS = (
    "blocking_connection.py",
    {"send", "receive", "wake"},
    {"wait", "wait_for_input"},
)
TASKS, QUEUES = 64, 1_500

Seconds: TypeAlias = dict[str, float]


class Sampler(threading.Thread):
    """Counts seconds by what the threads of this process do, and by module for our code; writes them to a file if there is a folder."""

    def __init__(self, folder: str | None = None) -> None:
        super().__init__(daemon=True)
        self.seconds: Seconds = defaultdict(float)
        self._file = Path(folder, f"{os.getpid()}.json") if folder else None
        self._over = threading.Event()

    def run(self) -> None:
        """Look, until `stop`."""
        sys.setswitchinterval(0.0001)  # else this thread mostly runs when another one waits
        last = written = time.perf_counter()
        while not self._over.wait(EVERY_S):
            seen = [
                where(frame, thread)
                for thread, frame in sys._current_frames().items()  # noqa: SLF001  # documented
                if thread != self.ident
            ]
            now = time.perf_counter()
            self.seconds[min(seen, key=precedence, default=WAITING)] += now - last
            last = now
            if self._file is not None and now - written >= WRITE_S:
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps(self.seconds))
                part.rename(self._file)
                written = now

    def stop(self) -> Seconds:
        """Stop, and return the seconds."""
        self._over.set()
        self.join()
        return self.seconds


def precedence(seen: str) -> int:
    """Return the place of what a thread does: the lowest is that of the process."""
    return next(
        place for place, name in enumerate((OURS, SOCKET, SPARK, PROGRAM, WAITING)) if seen.startswith(name)
    )


def where(frame: FrameType, thread: int) -> str:
    """Return what a thread does, by the innermost frame of a known file."""
    innermost, found = frame, None
    step: FrameType | None = frame
    while step is not None and found is None:
        path, name = step.f_code.co_filename, step.f_code.co_name
        if any(part in path for part in SPARK_FILES):
            found = SPARK
        elif path.endswith(SOCKET_FILE) and name in SOCKET_CALLS | WAIT_CALLS:
            found = WAITING if name in WAIT_CALLS or is_asleep(thread) else SOCKET
        elif any(part in path for part in OUR_FILES) and "/bench/" not in path:
            found = WAITING if is_blocked(innermost) else f"{OURS} {'/'.join(Path(path).parts[-2:])}"
        step = step.f_back
    return found or (WAITING if is_blocked(innermost) else PROGRAM)


def is_blocked(frame: FrameType) -> bool:
    """Return whether a thread waits for another one, or for an event loop."""
    code = frame.f_code
    return (Path(code.co_filename).name, code.co_name) in {
        ("threading.py", "wait"),
        ("threading.py", "_wait_for_tstate_lock"),
        ("thread.py", "_worker"),
        ("selectors.py", "select"),
    }


def is_asleep(thread: int) -> bool:
    """Return whether the system has put a thread to sleep (Linux)."""
    native = next((one.native_id for one in threading.enumerate() if one.ident == thread), None)
    try:
        return Path(f"/proc/self/task/{native}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


def follow_forks() -> None:
    """Sample each process that this one forks, as Spark's daemon forks its Python workers."""
    os.register_at_fork(after_in_child=lambda: Sampler(os.environ[FOLDER]).start())


def total(folder: str) -> Seconds:
    """Return the seconds of all workers so far."""
    seconds: Seconds = defaultdict(float)
    for path in Path(folder).glob("*.json"):
        for name, value in json.loads(path.read_text()).items():
            seconds[name] += value
    return seconds


def here(work: Callable[[], object]) -> Seconds:
    """Return the seconds of a path in this process."""
    sampler = Sampler()
    sampler.start()
    work()
    return sampler.stop()


def in_spark(work: Callable[[], object], folder: str, cores: int) -> Seconds:
    """Return the seconds of a path of Spark, in all of its cores."""
    work()  # starts the workers
    time.sleep(2 * WRITE_S)
    before, began = total(folder), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    time.sleep(2 * WRITE_S)
    found = {name: value - before[name] for name, value in total(folder).items()}
    own = {name: value for name, value in found.items() if name.startswith((OURS, SOCKET, WAITING))}
    # A worker without a task waits for Spark, in a frame of PySpark.
    return {**own, SPARK: max(0.0, wall * cores - sum(own.values()))}


def local_paths(size: int) -> Iterator[tuple[str, Seconds]]:
    """Measure the paths without Spark."""
    import pyarrow as pa
    import service
    from plan import changes, ring_of, topology
    from spark_write import EXCHANGE, bench_exchange

    from rabbit_chx import HashRing, Publisher
    from rabbit_chx.topology import plan

    keys = pa.array([f"order-{i:08}" for i in range(1_000_000)])
    ring = HashRing.from_buckets([f"q{i}" for i in range(10)])
    yield "key to queue", here(lambda: [ring.indices(keys) for _ in range(50 * size)])
    before, after = changes(QUEUES)["shuffled"]
    live = topology(before).with_rings({"orders": ring_of(before)})
    wanted = topology(after)
    yield f"plan of {QUEUES:,} queues", here(lambda: plan(wanted, live))
    with bench_exchange() as (place, channel):
        channel.queue_declare(service.QUEUE, durable=True)
        messages = 20_000 * size
        yield "one message per request", here(lambda: service.shared_tasks(place.url, TASKS, messages))
        with Publisher(place.url, EXCHANGE) as publisher:
            texts = [f"order-{i:08}" for i in range(messages)]
            yield "bulk AMQP", here(lambda: publisher.publish_many(texts, [service.BODY] * messages))


def spark_paths(size: int, folder: str) -> Iterator[tuple[str, Seconds]]:
    """Measure the paths of Spark."""
    import spark_streams
    from spark_write import bench_exchange, ours, prepared, spark_on

    cores, versions = spark_streams.CORES, count(1)
    spark = spark_on(cores)
    rows = prepared(spark, 40_000 * size)
    with bench_exchange() as (place, _):
        yield "Spark to queues", in_spark(lambda: ours(rows, place.url), folder, cores)
        ring = spark_streams.declared(place)
        ways = spark_streams.ways_in(rows, place, ring, versions)
        yield "exactly once", in_spark(ways["stream protocol, exactly once"], folder, cores)
        for _ in range(5):
            ways[spark_streams.AT_LEAST_ONCE]()
        options = {"url": place.stream_url, "stream": ",".join(spark_streams.STREAMS)}
        streams = spark.read.format("rabbitmq").options(**options)
        yield "stream to Spark", in_spark(lambda: spark_streams.read(streams.load()), folder, cores)
    spark.stop()


def main() -> None:
    """Measure all paths, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, for a look")
    size = 1 if parser.parse_args().quick else 5
    names = (SPARK, OURS, SOCKET, PROGRAM, WAITING)
    print(f"| path | {', % | '.join(names)}, % | most of our code, % of all |")
    print(f"| --- |{' ---: |' * len(names)} --- |")
    with tempfile.TemporaryDirectory() as folder:
        start = f"import runpy\nrunpy.run_path({__file__!r}, run_name='sampler')['follow_forks']()\n"
        Path(folder, "sitecustomize.py").write_text(start)
        os.environ[FOLDER] = folder
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        for path, seconds in chain(local_paths(size), spark_paths(size, folder)):
            whole = sum(seconds.values())
            shares = [
                sum(value for key, value in seconds.items() if key.startswith(name)) / whole for name in names
            ]
            most = [
                f"{key.removeprefix(OURS).strip()} {value / whole:.0%}"
                for key, value in sorted(seconds.items(), key=itemgetter(1), reverse=True)
                if key.startswith(OURS)
            ]
            print(
                f"| {path} | {' | '.join(f'{share:.0%}' for share in shares)} | {', '.join(most[:3])} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
