"""Give files that are damaged or hostile to the command line, all in one child process, whose memory is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60  # for one command
CHILD = """
import contextlib, io, json, resource, signal, sys, traceback
import torch
torch.set_num_threads(1)
from epibench.cli import main
main_ = main
import epibench.members.stored, epibench.store, epibench.evaluation.scoring
own = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (own + 3 * 2**30,) * 2)
for line in sys.stdin:
    name, arguments = json.loads(line)
    sys.argv, said = ["epibench", *arguments], io.TextIOWrapper(io.BytesIO())
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            main_()
    except SystemExit as stop:
        status = stop.code or 0
    except BaseException:
        status = "traceback"
        said.write(traceback.format_exc())
    signal.alarm(0)
    # Not ru_maxrss: that begins with the memory of the process which started this one.
    peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
    said.seek(0)
    print(json.dumps([name, status, said.read(), peak]), flush=True)
"""


class Answer(NamedTuple):
    """What a command answered, and the largest memory of the process until then."""

    status: int | str
    said: str
    peak: int


def answers(commands: Mapping[str, Sequence[object]], folder: Path) -> dict[str, Answer]:
    """The answers to commands, one after another in one process."""
    lines = "".join(json.dumps([name, [*map(str, arguments)]]) + "\n" for name, arguments in commands.items())
    child = CHILD.replace("SECONDS", str(SECONDS))
    done = subprocess.run([sys.executable, "-c", child], input=lines, capture_output=True, text=True, cwd=folder)
    rows: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(commands), done.stderr[-3000:]
    return {name: Answer(*rest) for name, *rest in rows}


def assert_refused(answer: Answer, *words: str) -> None:
    """One line, status 2, and less than 2 GB."""
    assert answer.status == 2, answer
    lines = answer.said.strip().splitlines()
    assert len(lines) == 1, answer.said
    assert lines[0].startswith("epibench: ")
    assert [word for word in words if word not in lines[0]] == [], lines[0]
    assert answer.peak < 2 * 10**9
