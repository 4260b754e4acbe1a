"""Jobs in processes: messages arrive, errors leave other jobs alone, and nobody stays behind.

Processes are started from a script that leaves the rest of the package out: otherwise each would import PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epibench.errors import InputError
from epibench.runs.processes import run_jobs

SCRIPT = """
import json, os, signal, sys, time, types
from pathlib import Path

import epibench

package = types.ModuleType("epibench.runs")
package.__path__ = [str(Path(epibench.__file__).parent / "runs")]
sys.modules["epibench.runs"] = package

from epibench import stopping
from epibench.errors import InputError
from epibench.runs.processes import run_jobs


def save_together(out, send):
    # Ask to be stopped, and save only once both processes were told.
    with stopping.in_steps():
        send(["stop", 0])
        while not stopping.asked():
            time.sleep(0.01)
        (out / f"told-{os.getpid()}").touch()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if len(list(out.glob("told-*"))) == 2:
                (out / f"saved-{os.getpid()}").touch()
                break
            time.sleep(0.01)


def work(job, send):
    send(["process", os.getpid()])
    for number in range(3):
        send([job, number])
    if job == "bad":
        raise InputError("bad: give another one")
    if job == "broken":
        raise ZeroDivisionError("of all things")
    if job == "killed":
        time.sleep(0.2)  # what it sent has gone out, and it holds no lock
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "silent":
        time.sleep(30)
    if job == "saving":
        save_together(Path(sys.argv[1]), send)
    while job == "endless":
        time.sleep(0.05)
        send([job, 0])


if __name__ == "__main__":
    out, received, found = Path(sys.argv[1]), [], {}

    def receive(number, content):
        received.append([number, content])
        if content[0] == "process":
            (out / f"began-{number}").touch()
        if content[0] == "stop" and sum(each[0] == "stop" for _, each in received) == 2:
            raise stopping.Stopped

    try:
        found["errors"] = run_jobs(sys.argv[2:], work, 2, receive)
    except (Exception, stopping.Stopped) as error:
        found["raised"] = [type(error).__name__, str(error)]
    places = {content[1] for _, content in received if content[0] == "process"}
    found |= {"received": received, "here": os.getpid(), "places": sorted(places)}
    (out / "found.json").write_text(json.dumps(found))
"""


def start(folder: Path, *jobs: str) -> subprocess.Popen[bytes]:
    """The jobs by two processes, beside the tests."""
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen([sys.executable, script, folder, *jobs], stderr=subprocess.DEVNULL)


def run_in_two_processes(folder: Path, *jobs: str) -> dict[str, Any]:
    """What the jobs sent, and how they ended."""
    process = start(folder, *jobs)
    try:
        process.wait(10)
    finally:
        process.kill()
        process.wait()
    return json.loads((folder / "found.json").read_text())


JOBS = ("good", "bad", "fine", "bad", "last")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> dict[str, Any]:
    return run_in_two_processes(tmp_path_factory.mktemp("jobs"), *JOBS)


def test_errors_in_processes_are_named_by_the_number_of_their_job(elsewhere) -> None:
    assert elsewhere["errors"] == {"1": "bad: give another one", "3": "bad: give another one"}


def test_every_message_of_every_process_arrives_in_order(elsewhere) -> None:
    for number, job in enumerate(JOBS):
        sent = [content for sender, content in elsewhere["received"] if sender == number]
        assert sent[1:] == [[job, 0], [job, 1], [job, 2]]


def test_processes_are_others_than_this_one(elsewhere) -> None:
    assert elsewhere["here"] not in elsewhere["places"]


def test_processes_end_with_the_last_job(elsewhere) -> None:
    assert not any(alive(place) for place in elsewhere["places"])


def test_a_process_that_dies_is_an_error_in_words(tmp_path: Path) -> None:
    found = run_in_two_processes(tmp_path / "jobs", "killed", "good")
    name, text = found["raised"]
    assert name == "JobFailedError"
    assert text.startswith("a process that trained a network has died (status -9")
    assert text.endswith("the same command goes on from what is saved")


def test_an_unforeseen_error_in_a_process_is_told(tmp_path: Path) -> None:
    found = run_in_two_processes(tmp_path / "jobs", "broken", "good")
    assert found["raised"] == ["JobFailedError", "ZeroDivisionError: of all things"]


@pytest.mark.parametrize("job", ["killed", "broken"])
def test_a_process_that_fails_ends_the_others(job: str, tmp_path: Path) -> None:
    found = run_in_two_processes(tmp_path / "jobs", "endless", job)
    assert found["raised"][0] == "JobFailedError"
    assert not any(alive(place) for place in found["places"])


def test_processes_that_are_stopped_save_at_the_same_time(tmp_path: Path) -> None:
    found = run_in_two_processes(tmp_path / "jobs", "saving", "saving")
    assert found["raised"][0] == "Stopped"
    assert len(list((tmp_path / "jobs").glob("saved-*"))) == 2


@pytest.mark.parametrize(
    "jobs",
    [("endless", "endless"), ("endless", "good"), ("silent", "silent")],
    ids=["talking", "waiting", "silent"],
)
def test_processes_end_when_the_one_that_asked_is_killed(jobs: tuple[str, str], tmp_path: Path) -> None:
    parent = start(tmp_path / "jobs", *jobs)
    try:
        wait_until(lambda: len(list((tmp_path / "jobs").glob("began-*"))) == 2, 60)
        children = children_of(parent.pid)
    finally:
        parent.kill()
        parent.wait()
    assert children
    wait_until(lambda: not any(alive(child) for child in children), 5)


# In this process


def work(job: str, send: Callable[[Any], None]) -> None:
    """What the word says."""
    send((job, os.getpid()))
    if job == "bad":
        raise InputError("bad: give another one")
    if job == "broken":
        raise ZeroDivisionError("of all things")


def test_errors_here_are_named_by_the_number_of_their_job() -> None:
    assert run_jobs(JOBS, work, 1) == {1: "bad: give another one", 3: "bad: give another one"}


def test_every_message_here_arrives_in_order() -> None:
    received: list[tuple[int, Any]] = []
    run_jobs(JOBS, work, 1, lambda number, content: received.append((number, content)))
    assert received == [(number, (job, os.getpid())) for number, job in enumerate(JOBS)]


def test_without_jobs_nothing_is_done() -> None:
    assert run_jobs([], work, 2) == {}


def test_one_job_needs_no_process_of_its_own() -> None:
    received: list[Any] = []
    run_jobs(["good"], work, 4, lambda number, content: received.append(content))
    assert received == [("good", os.getpid())]


def test_an_unforeseen_error_here_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_jobs(["good", "broken"], work, 1)


def children_of(process: int) -> list[int]:
    """The processes that it has started."""
    return [
        int(place.name)
        for place in Path("/proc").iterdir()
        if place.name.isdigit() and status_of(place).get("PPid") == str(process)
    ]


def status_of(place: Path) -> dict[str, str]:
    try:
        lines = (place / "status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has ended
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def alive(process: int) -> bool:
    state = status_of(Path(f"/proc/{process}")).get("State", "")
    return bool(state) and not state.startswith("Z")


def wait_until(happened: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
