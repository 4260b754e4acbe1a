"""Jobs as tasks of a Ray cluster: a process each, on whichever node has room, tried again where one was lost.

Needs the extra `ray`. Nothing here imports torch: what a task needs is imported by its work.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import epibench
from epibench import devices, mirror
from epibench.errors import ArgumentError, InputError
from epibench.runs.executors import JobResources, Receive
from epibench.runs.processes import Job, Send

RETRIES = 3  # after which a job that still fails is left
POLL_SECONDS = 0.5
SEND_SECONDS = 0.5  # between messages of one job
STOP_SECONDS = 10.0  # for tasks that are cancelled
# Of a cluster that is started here: nothing is sent anywhere, and tasks are no less urgent than local processes are.
STARTED_WITH = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}
PASSED_ON = ("EPIBENCH_",)  # variables of this process that tasks see, too


@contextmanager
def open_ray(folder: Path, say: Callable[[str], None]) -> Iterator[RayExecutor]:
    """The cluster that RAY_ADDRESS or `ray start` on this machine names, or one of this machine's cores for now."""
    try:
        for name, value in STARTED_WITH.items():
            os.environ.setdefault(name, value)
        import ray
    except ImportError:
        raise InputError("--executor ray needs a package more: pip install 'epibench[ray]'") from None
    started = not ray.is_initialized()
    if started:
        silence(ray)
        try:
            with keeping_sigterm():
                ray.init(runtime_env={"env_vars": environment()}, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            address = os.environ.get("RAY_ADDRESS", "none is given, so that one would be started here")
            why = str(error).strip().splitlines()[0]
            raise InputError(
                f"--executor ray: no cluster can be used (RAY_ADDRESS: {address}): {why}; is it up (ray status)?"
            ) from None
    try:
        executor = RayExecutor(ray, folder.absolute(), say)
        say(executor.about)
        yield executor
    finally:
        if started:
            ray.shutdown()


@contextmanager
def keeping_sigterm() -> Iterator[None]:
    """What SIGTERM does stays as it is: Ray sets an end of its own, at which nothing would be saved."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def silence(ray: Any) -> None:
    """Keep Ray's own lines off the terminal: they would go to stdout, where results go, and we say what matters."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    if hasattr(ray._private.worker, "print_to_stdstream"):  # of processes and nodes that died
        ray._private.worker.print_to_stdstream = lambda *arguments, **named: None


def environment() -> dict[str, str]:
    """The variables that tasks get from here: where this package is, if it is not installed, and settings of ours."""
    source = Path(epibench.__file__).parents[1]
    paths = [] if source.name in ("site-packages", "dist-packages") else [str(source)]
    paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return own | ({"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))} if paths else {})


@dataclass(frozen=True)
class Order:
    """What a task is told. key: of the call, the job and the attempt; here, folder: paths that its node must see.

    reads: how names of networks and stretches begin that it needs, where the folder mirrors a URL (`mirror.is_read`).
    """

    key: tuple[int, int, int]
    pickled: bytes  # work and job: opened where the folder and the number of threads are set
    here: str
    folder: str
    threads: int
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a task returns: the error of a user's, if there was one, and the last message."""

    error: str | None
    last: tuple[Any, ...]  # of one message, or none


class Board:
    """The latest message of every job, until somebody takes it. An actor beside the driver: no other node loses it."""

    def __init__(self) -> None:
        self.latest: dict[tuple[int, int, int], Any] = {}

    def put(self, key: tuple[int, int, int], content: Any) -> None:
        """Say where a job stands."""
        self.latest[key] = content

    def take(self) -> dict[tuple[int, int, int], Any]:
        """What has been said since the last time."""
        taken, self.latest = self.latest, {}
        return taken


class Sender:
    """Sends the messages of one job to the board, not more often than somebody looks at it."""

    def __init__(self, order: Order, board: Any):
        self.key, self.board, self.sent, self.last = order.key, board, float("-inf"), tuple[Any, ...]()
        self.calls = list[Any]()  # the latest one

    def __call__(self, content: Any) -> None:
        """Send a message, or keep it until the next one."""
        self.last = (content,)
        if time.monotonic() > self.sent + SEND_SECONDS:
            self.sent = time.monotonic()
            self.calls = [self.board.put.remote(self.key, content)]

    def finish(self) -> None:
        """Wait until what was sent has arrived: Ray has been seen to abort a process that ends before."""
        import ray

        if self.calls:
            ray.wait(self.calls, timeout=STOP_SECONDS)


def carry_out(order: Order, board: Any) -> Outcome:
    """One task: what the job sends goes to the board, what it finds into the run folder."""
    from ray import cloudpickle

    send = Sender(order, board)
    try:
        mirror.fetch_current(lambda name: mirror.is_read(name, order.reads))
        go_to(order.here, order.folder)
        os.environ["OMP_NUM_THREADS"] = str(order.threads)  # before torch is imported, also where the node has its own
        work, job = cloudpickle.loads(order.pickled)
        work(job, send)
        mirror.push_unpushed()  # what is here alone is lost for others: then the job fails, and is tried again
    except InputError as error:
        return Outcome(str(error), send.last)
    finally:
        send.finish()
    return Outcome(None, send.last)


def go_to(here: str, folder: str) -> None:
    """Let relative paths mean what they mean where the command was given, and the run folder be the same."""
    for path in (here, folder):
        if not Path(path).is_dir():
            raise InputError(
                f"{path}: node {socket.gethostname()} does not see this folder; give --out on storage that all nodes "
                f"have under the same path, and give the command in such a folder"
            )
    os.chdir(here)


class RayExecutor:
    """Every job is a task in a process of its own. say: receives messages of one line."""

    remote = True

    def __init__(self, ray: Any, folder: Path, say: Callable[[str], None]):
        self.ray, self.folder, self.say = ray, folder, say
        self.calls = itertools.count()
        beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": beside}
        self.board = ray.remote(Board).options(**options).remote()

    @property
    def nodes(self) -> list[dict[str, float]]:
        """What each living node has."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    @property
    def about(self) -> str:
        """The cluster in a line, with a link to its dashboard where it has one."""
        nodes = self.nodes
        parts = [f"{sum(node.get('CPU', 0) for node in nodes):g} cores"]
        if gpus := sum(node.get("GPU", 0) for node in nodes):
            parts.append(f"{gpus:g} GPU{'s' if gpus > 1 else ''}")
        url = self.ray._private.worker.get_dashboard_url()  # plain `ray` has none, `ray[default]` has
        where = f"; dashboard: http://{url}" if url else ""
        return f"Ray: {len(nodes)} node{'s' if len(nodes) > 1 else ''}, {', '.join(parts)}{where}"

    @property
    def cores(self) -> int:
        """The fewest cores that a node has for each of its GPUs; without GPUs, those of the largest."""
        shares = [node.get("CPU", 0) / node["GPU"] for node in self.nodes if node.get("GPU")]
        return max(1, int(min(shares))) if shares else int(max(node.get("CPU", 0) for node in self.nodes))

    def resolve_device(self, name: str, option: str) -> str:
        """The kind of device that tasks get from Ray."""
        devices.check_device(name, option)
        has_gpus = any(node.get("GPU") for node in self.nodes)
        if name.startswith("cuda:"):
            raise ArgumentError(f"{option} {name}: Ray chooses the GPU of each task; give cuda, cpu or auto")
        if name == "cuda" and not has_gpus:
            raise ArgumentError(f"{option} cuda: no node of the Ray cluster has a GPU; give cpu or auto")
        return "cuda" if has_gpus and name != "cpu" else "cpu"

    def room(self, resources: JobResources) -> int:
        """How many tasks fit onto the nodes."""
        asked = self.options(resources)
        amounts = {"CPU": asked["num_cpus"], "GPU": asked["num_gpus"], "memory": asked["memory"] or 0}

        def fits(node: Mapping[str, float]) -> int:
            return min(int(node.get(name, 0) / amount) for name, amount in amounts.items() if amount)

        return max(1, sum(fits(node) for node in self.nodes))

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Do all jobs as tasks. One that fails in whatever way is tried again, then left; the others go on."""
        if not jobs:
            return {}
        if not any(node.get("GPU", 0) >= resources.gpus and node.get("CPU", 0) >= 1 for node in self.nodes):
            gpus = f" and {resources.gpus:g} GPUs" if resources.gpus else ""
            self.say(f"no node has a core{gpus}: waiting for one to join")
        call = _Call(self, jobs, work, resources, receive)
        try:
            errors = call.run()
        finally:
            call.cancel()
        mirror.fetch_current()  # what tasks have written
        return errors

    def options(self, resources: JobResources) -> dict[str, Any]:
        """What a task asks for; never more cores or memory than the largest node has, where nobody could serve it."""
        nodes = self.nodes
        largest = {name: max(node.get(name, 0) for node in nodes) for name in ("CPU", "memory")}
        return {
            "num_cpus": max(1, min(resources.cpus, int(largest["CPU"]))),
            "num_gpus": int(resources.gpus * 1e4) / 1e4,  # as fine as Ray's fractions are: three thirds fit
            "memory": min(resources.memory, int(largest["memory"])) or None,
            "max_calls": 1,  # a process for each job: nothing of another one is left in memory or on the GPU
            "max_retries": 0,  # Ray's own are silent, and without end where memory is short
        }


class _Call:
    """Some jobs that are being done."""

    def __init__(
        self,
        executor: RayExecutor,
        jobs: Sequence[Any],
        work: Callable[[Any, Send], None],
        resources: JobResources,
        receive: Receive,
    ):
        self.executor, self.ray, self.jobs, self.work, self.receive = executor, executor.ray, jobs, work, receive
        self.number, self.threads = next(executor.calls), resources.cpus if not resources.gpus else 1
        self.task = self.ray.remote(**executor.options(resources))(carry_out)
        self.attempts: dict[int, int] = {}
        self.pending: dict[Any, int] = {}
        self.taking: Any = None

    def run(self) -> dict[int, str]:
        """Submit everything, and see to it until all has ended."""
        errors = dict[int, str]()
        for number in range(len(self.jobs)):
            self.submit(number)
        while self.pending:
            ready, _ = self.ray.wait(list(self.pending), num_returns=1, timeout=POLL_SECONDS)
            self.look_at_board()
            for reference in ready:
                number = self.pending.pop(reference)
                error = self.outcome(number, reference)
                if error is not None:
                    errors[number] = error
        return errors

    def submit(self, number: int) -> None:
        """Try a job, for the first time or again."""
        self.attempts[number] = self.attempts.get(number, 0) + 1
        key, job = (self.number, number, self.attempts[number]), self.jobs[number]
        pickled = self.ray.cloudpickle.dumps((self.work, job))
        reads = getattr(job, "reads", ())
        order = Order(key, pickled, os.getcwd(), str(self.executor.folder), self.threads, reads)
        named = self.task.options(name=str(job))
        self.pending[named.remote(order, self.executor.board)] = number

    def outcome(self, number: int, reference: Any) -> str | None:
        """What went wrong with a job that has ended; None if nothing did, or if it is tried again."""
        job, attempt = self.jobs[number], self.attempts[number]
        try:
            found: Outcome = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            why = in_words(self.ray, error)
            if attempt > RETRIES:
                return f"{job}: failed {attempt} times, the last time because {why}; the same command tries it again"
            self.executor.say(f"{job}: {why}; it is tried again ({attempt} of {RETRIES})")
            self.submit(number)
            return None
        for content in found.last:
            self.receive(number, content)
        return found.error

    def look_at_board(self) -> None:
        """Pass messages on that have come since, of jobs that go on; never wait for them."""
        if self.taking is not None and not self.ray.wait([self.taking], timeout=0)[0]:
            return
        taken: Mapping[tuple[int, int, int], Any] = {}
        if self.taking is not None:
            with suppress(self.ray.exceptions.RayError):  # it is started anew, and some messages are lost
                taken = self.ray.get(self.taking)
        self.taking = self.executor.board.take.remote()
        running = set(self.pending.values())
        for (call, number, attempt), content in taken.items():
            if call == self.number and number in running and attempt == self.attempts[number]:
                self.receive(number, content)

    def cancel(self) -> None:
        """End what still runs; what it has saved is there for the next time."""
        for reference in self.pending:
            self.ray.cancel(reference, force=True)
        if self.pending:
            self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=STOP_SECONDS)


def in_words(ray: Any, error: Exception) -> str:
    """Why a task failed, in one line."""
    known = {
        ray.exceptions.NodeDiedError: "its node was lost",
        ray.exceptions.WorkerCrashedError: "its process died",
        ray.exceptions.OutOfMemoryError: "its node had no memory left",
        ray.exceptions.LocalRayletDiedError: "its node was lost",
    }
    for kind, words in known.items():
        if isinstance(error, kind):
            return words
    cause = getattr(error, "cause", None) or error
    return " ".join(f"{type(cause).__name__}: {cause}".split())
