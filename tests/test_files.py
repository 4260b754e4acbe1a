"""Files are whole or not there, whoever writes them at once, and whoever is killed."""

import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from epibench import files
from epibench.errors import InputError
from epibench.files import (
    create,
    fingerprint,
    numbers_in_lines,
    read_json,
    remove_leftovers,
    replacing,
    unfinished,
    write_json,
)

KILLED = """
import os, sys
from pathlib import Path
from epibench.files import replacing
with replacing(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def umask():
    before = os.umask(0o022)

    def change(mask):
        os.umask(mask)

    yield change
    os.umask(before)


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftover(folder, owner, name="results.json"):
    path = folder / f".{name}.{owner}{files.UNFINISHED}"
    path.write_text("half")
    return path


def test_a_file_and_its_folders_are_written(tmp_path):
    write_json(tmp_path / "deep" / "er" / "a.json", {"a": 1})
    assert read_json(tmp_path / "deep" / "er" / "a.json") == {"a": 1}
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["a.json"]


def test_an_error_within_leaves_the_old_file_and_nothing_else(tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    with suppress(KeyboardInterrupt), replacing(tmp_path / "a.json") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
@pytest.mark.parametrize("write", [lambda path: write_json(path, {}), lambda path: create(path, b"")])
def test_files_have_the_permissions_of_the_umask(tmp_path, umask, mask, mode, write):
    umask(mask)
    write(tmp_path / "a.json")
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == mode


def test_a_writer_that_is_killed_leaves_the_old_file_and_a_leftover_that_is_removed(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "written\n"
        remove_leftovers(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2  # it lives
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert read_json(path) == {"a": 1}


def test_leftovers_of_dead_processes_are_removed_below_a_folder(tmp_path):
    (tmp_path / "members").mkdir()
    dead = leftover(tmp_path / "members", f"{files.machine()}-{dead_process()}-0")
    living = leftover(tmp_path / "members", f"{files.machine()}-{os.getpid()}-0")
    remove_leftovers(tmp_path, deep=False)
    assert dead.exists()
    remove_leftovers(tmp_path)
    assert not dead.exists()
    assert living.exists()


def test_leftovers_of_another_machine_are_removed_when_they_are_a_day_old(tmp_path):
    old, new = (leftover(tmp_path, f"elsewhere-{dead_process()}-{number}") for number in range(2))
    os.utime(old, (time.time() - 2 * 24 * 3600,) * 2)
    remove_leftovers(tmp_path)
    assert not old.exists()
    assert new.exists()


def test_folders_that_were_left_are_removed(tmp_path):
    folder = tmp_path / f".preds.zarr.{files.machine()}-{dead_process()}-3{files.UNFINISHED}"
    (folder / "mean").mkdir(parents=True)
    remove_leftovers(tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize("name", [".config.5", ".a.unfinished", "b.unfinished", ".cache.5-1", ".x.1.unfinished"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("letters", [b"a" * 240, "ä".encode() * 120, b"\xff" * 240], ids=["ascii", "utf-8", "neither"])
def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path, letters):
    name = os.fsdecode(letters + b"a" * 10 + b".json")
    write_json(tmp_path / name, {})
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_pipe_is_written_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as executor:
        read = executor.submit((tmp_path / "pipe").read_text)
        write_json(tmp_path / "pipe", {"a": 1})
        assert json.loads(read.result()) == {"a": 1}
    assert (tmp_path / "pipe").is_fifo()


def test_a_device_is_written_into():
    write_json(Path("/dev/null"), {"a": 1})
    assert Path("/dev/null").is_char_device()


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for number in range(2):
        write_json(tmp_path / "link", {"a": number})
    assert (tmp_path / "link").is_symlink()
    assert read_json(tmp_path / "file") == {"a": 1}


def test_a_full_disk_is_an_error_that_names_the_file():
    with pytest.raises(OSError, match="No space left") as error:
        write_json(Path("/dev/full"), {"a": 1})
    assert error.value.filename == "/dev/full"


def test_a_disk_that_fills_is_an_error_that_names_the_file(tmp_path):
    def full_disk():
        with replacing(tmp_path / "a.json") as stream:
            stream.write(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as error:
        full_disk()
    assert error.value.filename == str(tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_an_error_of_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as error, replacing(tmp_path / "a.json"):
        (tmp_path / "nowhere").read_text()
    assert error.value.filename == str(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written_to_is_an_error_that_names_the_file():
    with pytest.raises(OSError, match=r"a\.json") as error:
        write_json(Path("/proc/a.json"), {})  # where root cannot write, either
    assert error.value.filename == "/proc/a.json"


@pytest.mark.parametrize(("name", "kind"), [("folder", InputError), ("file/a.json", OSError)])
def test_what_is_in_the_way_is_an_error_that_names_it(tmp_path, name, kind):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(kind) as error:
        write_json(tmp_path / name, {})
    assert str(tmp_path) in str(error.value)


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    path, barrier = tmp_path / "a.json", threading.Barrier(8)

    def write(number):
        barrier.wait()
        for _ in range(50):
            write_json(path, {"number": number, "filler": "x" * 10_000})
            assert len(read_json(path)["filler"]) == 10_000

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(write, range(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_names_of_unfinished_files_differ(tmp_path):
    assert len({unfinished(tmp_path / "a") for _ in range(100)}) == 100


def test_of_several_creators_the_first_wins(tmp_path):
    path, barrier = tmp_path / "a.json", threading.Barrier(8)

    def begin(number):
        barrier.wait()
        return number if create(path, str(number).encode()) else None

    with ThreadPoolExecutor(8) as executor:
        winners = [number for number in executor.map(begin, range(8)) if number is not None]
    assert [str(number) for number in winners] == [path.read_text()]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_creating_works_without_hard_links(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert create(tmp_path / "a", b"first")
    assert not create(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00", "[" * 100_000])
def test_what_is_no_json_object_is_none(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert read_json(tmp_path / "a.json") is None


def test_what_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_fingerprints_depend_on_content_and_on_where_parts_end():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    parts = [(b"ab", b"c"), (b"a", b"bc"), ("ab", "c"), ("abc",), (b"abc",), (b'"abc"',), (["ab", "c"],)]
    assert len({fingerprint(*each) for each in parts}) == len(parts)


def test_lists_of_numbers_stand_on_one_line_and_mean_the_same() -> None:
    content = {"a": [1, -2.5e-07, None], "b": [[], [3]], "text": ["[1,\n 2]", "x"], "c": [{"d": [1, 2]}]}
    text = numbers_in_lines(json.dumps(content, indent=1))
    assert json.loads(text) == content
    assert ' "a": [1, -2.5e-07, null],\n' in text
    assert '"d": [1, 2]\n' in text


def test_json_is_written_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "results.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"a": math.nan})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
