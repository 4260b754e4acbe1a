"""Jobs as tasks of a Ray cluster, each in its own process.

Lost tasks are retried. Needs the extra `ray`. This module does not import torch: a task's `work` imports it.
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

RETRIES = 3  # of a failing job
POLL_SECONDS = 0.5
SEND_SECONDS = 0.5  # between messages of one job
STOP_SECONDS = 10.0  # for tasks that are cancelled
# For a cluster that is started here: no usage statistics, and tasks have the priority of local processes.
STARTED_WITH = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}
PASSED_ON = ("EPIBENCH_",)  # prefixes of environment variables that tasks inherit


@contextmanager
def open_ray(folder: Path, say: Callable[[str], None]) -> Iterator[RayExecutor]:
    """Connect to the cluster of RAY_ADDRESS or `ray start`; without one, start a temporary cluster here."""
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
    """Restore the handler of SIGTERM at the end: Ray's own handler would end the process without saving."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def silence(ray: Any) -> None:
    """Keep Ray's own lines off stdout, which is for results."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    if hasattr(ray._private.worker, "print_to_stdstream"):  # prints lines about dead processes and nodes
        ray._private.worker.print_to_stdstream = lambda *arguments, **named: None


def environment() -> dict[str, str]:
    """Return the environment variables of tasks: PYTHONPATH, with this package unless installed, and EPIBENCH_*."""
    source = Path(epibench.__file__).parents[1]
    paths = [] if source.name in ("site-packages", "dist-packages") else [str(source)]
    paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return own | ({"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))} if paths else {})


@dataclass(frozen=True)
class Order:
    """The input of a task.

    Args:
        key: Numbers of the call, the job and the attempt.
        pickled: Work and job. They are unpickled after the working folder and the number of threads are set.
        here: Working folder, which the task's node must see.
        folder: Folder of the run, which the task's node must see.
        threads: Number of threads.
        reads: Prefixes of files of networks and stretches to download if the folder mirrors a URL.
    """

    key: tuple[int, int, int]
    pickled: bytes
    here: str
    folder: str
    threads: int
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The output of a task: the user's error or None, and the last message."""

    error: str | None
    last: tuple[Any, ...]  # one message or none


class Board:
    """The latest unread message of every job.

    The actor runs on the driver's node, so that no node loss ends it.
    """

    def __init__(self) -> None:
        self.latest: dict[tuple[int, int, int], Any] = {}

    def put(self, key: tuple[int, int, int], content: Any) -> None:
        """Set the latest message of a job."""
        self.latest[key] = content

    def take(self) -> dict[tuple[int, int, int], Any]:
        """Return and remove all messages."""
        taken, self.latest = self.latest, {}
        return taken


class Sender:
    """Sends the messages of one job to the board, at most one per `SEND_SECONDS`."""

    def __init__(self, order: Order, board: Any):
        self.key, self.board, self.sent, self.last = order.key, board, float("-inf"), tuple[Any, ...]()
        self.calls = list[Any]()  # the latest call

    def __call__(self, content: Any) -> None:
        """Send a message, or skip it if another one was sent a moment ago."""
        self.last = (content,)
        if time.monotonic() > self.sent + SEND_SECONDS:
            self.sent = time.monotonic()
            self.calls = [self.board.put.remote(self.key, content)]

    def finish(self) -> None:
        """Wait until the last message has arrived: Ray sometimes aborts a process that ends before."""
        import ray

        if self.calls:
            ray.wait(self.calls, timeout=STOP_SECONDS)


def carry_out(order: Order, board: Any) -> Outcome:
    """Run a job as a task. Its messages go to the board, its results into the run folder."""
    from ray import cloudpickle

    send = Sender(order, board)
    try:
        mirror.fetch_current(lambda name: mirror.is_read(name, order.reads))
        go_to(order.here, order.folder)
        os.environ["OMP_NUM_THREADS"] = str(order.threads)  # before torch is imported; replaces the node's own value
        work, job = cloudpickle.loads(order.pickled)
        work(job, send)
        mirror.push_unpushed()  # a file that cannot be uploaded is lost for other nodes: the job fails and is retried
    except InputError as error:
        return Outcome(str(error), send.last)
    finally:
        send.finish()
    return Outcome(None, send.last)


def go_to(here: str, folder: str) -> None:
    """Change to the command's working folder, and check that this node sees it and the run folder."""
    for path in (here, folder):
        if not Path(path).is_dir():
            raise InputError(
                f"{path}: node {socket.gethostname()} does not see this folder; give --out on storage that all nodes "
                f"have under the same path, and give the command in such a folder"
            )
    os.chdir(here)


class RayExecutor:
    """Runs every job as a task in its own process. `say` receives messages of one line."""

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
        """The resources of each living node."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    @property
    def about(self) -> str:
        """One line about the cluster, with a link to its dashboard if it has one."""
        nodes = self.nodes
        parts = [f"{sum(node.get('CPU', 0) for node in nodes):g} cores"]
        if gpus := sum(node.get("GPU", 0) for node in nodes):
            parts.append(f"{gpus:g} GPU{'s' if gpus > 1 else ''}")
        url = self.ray._private.worker.get_dashboard_url()  # plain `ray` has none, `ray[default]` has
        where = f"; dashboard: http://{url}" if url else ""
        return f"Ray: {len(nodes)} node{'s' if len(nodes) > 1 else ''}, {', '.join(parts)}{where}"

    @property
    def cores(self) -> int:
        """The smallest number of cores per GPU of any node; without GPUs, the cores of the largest node."""
        shares = [node.get("CPU", 0) / node["GPU"] for node in self.nodes if node.get("GPU")]
        return max(1, int(min(shares))) if shares else int(max(node.get("CPU", 0) for node in self.nodes))

    def resolve_device(self, name: str, option: str) -> str:
        """Return the device type that tasks get from Ray."""
        devices.check_device(name, option)
        has_gpus = any(node.get("GPU") for node in self.nodes)
        if name.startswith("cuda:"):
            raise ArgumentError(f"{option} {name}: Ray chooses the GPU of each task; give cuda, cpu or auto")
        if name == "cuda" and not has_gpus:
            raise ArgumentError(f"{option} cuda: no node of the Ray cluster has a GPU; give cpu or auto")
        return "cuda" if has_gpus and name != "cpu" else "cpu"

    def room(self, resources: JobResources) -> int:
        """Return how many tasks fit onto the nodes."""
        asked = self.options(resources)
        amounts = {"CPU": asked["num_cpus"], "GPU": asked["num_gpus"], "memory": asked["memory"] or 0}

        def fits(node: Mapping[str, float]) -> int:
            return min(int(node.get(name, 0) / amount) for name, amount in amounts.items() if amount)

        return max(1, sum(fits(node) for node in self.nodes))

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Run all jobs as tasks.

        A failing job is retried. A job that keeps failing does not stop the others.
        """
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
        """Return the resources of a task in Ray's words.

        They are at most the cores and the memory of the largest node.
        """
        nodes = self.nodes
        largest = {name: max(node.get(name, 0) for node in nodes) for name in ("CPU", "memory")}
        return {
            "num_cpus": max(1, min(resources.cpus, int(largest["CPU"]))),
            "num_gpus": int(resources.gpus * 1e4) / 1e4,  # rounded down to Ray's resolution: three thirds fit
            "memory": min(resources.memory, int(largest["memory"])) or None,
            "max_calls": 1,  # a new process for each job, so that no memory of another job remains
            "max_retries": 0,  # Ray's own retries are silent, and endless if memory is too small
        }


class _Call:
    """Jobs that are running."""

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
        """Submit all jobs, and wait for their end."""
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
        """Start an attempt of a job."""
        self.attempts[number] = self.attempts.get(number, 0) + 1
        key, job = (self.number, number, self.attempts[number]), self.jobs[number]
        pickled = self.ray.cloudpickle.dumps((self.work, job))
        reads = getattr(job, "reads", ())
        order = Order(key, pickled, os.getcwd(), str(self.executor.folder), self.threads, reads)
        named = self.task.options(name=str(job))
        self.pending[named.remote(order, self.executor.board)] = number

    def outcome(self, number: int, reference: Any) -> str | None:
        """Return the error of an ended job; None without an error, or if the job is retried."""
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
        """Forward new messages of running jobs, without waiting for them."""
        if self.taking is not None and not self.ray.wait([self.taking], timeout=0)[0]:
            return
        taken: Mapping[tuple[int, int, int], Any] = {}
        if self.taking is not None:
            with suppress(self.ray.exceptions.RayError):  # Ray restarts the actor; some messages are lost
                taken = self.ray.get(self.taking)
        self.taking = self.executor.board.take.remote()
        running = set(self.pending.values())
        for (call, number, attempt), content in taken.items():
            if call == self.number and number in running and attempt == self.attempts[number]:
                self.receive(number, content)

    def cancel(self) -> None:
        """Stop running tasks. Their saved states remain."""
        for reference in self.pending:
            self.ray.cancel(reference, force=True)
        if self.pending:
            self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=STOP_SECONDS)


def in_words(ray: Any, error: Exception) -> str:
    """Return in one line why a task failed."""
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
