"""What commands print: whole lines without a terminal, bars and colours on one, and one exit status for each end."""

import os
import re
import subprocess
import sys

import pytest
from rich.table import Table

from epibench import cli, console
from epibench.cli import app, main
from epibench.console import ConsoleReporter, messages, output, say, show
from epibench.errors import InputError
from epibench.progress import counted
from streams import plain

LONG = "/a/path with spaces/" + "word " * 100 + ":car: [red] end"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A line of progress at every step."""
    monkeypatch.setattr(console, "LINE_SECONDS", -1.0)


def epibench(*arguments, **options):
    command = [sys.executable, "-m", "epibench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **options)


@pytest.mark.parametrize("columns", ["20", "80", "300"])
@pytest.mark.parametrize("variable", ["NO_COLOR", "GITHUB_ACTIONS", "FORCE_COLOR"])
def test_without_a_terminal_a_line_is_whole(capsys, monkeypatch, columns, variable):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv(variable, "1")
    show(LONG)
    say(LONG)
    assert [plain(text) for text in capsys.readouterr()] == [LONG + "\n"] * 2


def test_without_a_terminal_a_table_has_all_of_its_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    table = Table(*(f"column {number}" for number in range(30)), box=None)
    output().print(table)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(("variable", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False), (None, False)])
def test_without_a_terminal_colours_come_only_where_they_are_asked_for(capsys, monkeypatch, variable, coloured):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if variable:
        monkeypatch.setenv(variable, "1")
    show("text", style="bold")
    assert ("\x1b" in capsys.readouterr().out) == coloured


def test_on_a_terminal_a_line_is_left_to_the_terminal(terminal):
    shown = terminal("stderr", 40)
    say(LONG)
    assert plain(shown.getvalue()) == LONG + "\n"


def test_names_of_files_do_not_move_the_cursor(capsys):
    say("a\x1b[2J\r\nb")
    assert capsys.readouterr().err == "a�[2J��b\n"


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR"])
def test_without_a_terminal_progress_is_lines(capsys, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    reporter = ConsoleReporter()
    with reporter.step("train [map]", 4, done=1) as advance:
        advance(1, "loss 0.5")
        advance(2)
    lines = plain(capsys.readouterr().err).splitlines()
    assert lines[0] == "train [map]: 50 %, loss 0.5"
    assert re.fullmatch(r"train \[map\]: \d+\.\d s", lines[1])
    assert len(lines) == 2


def test_on_a_terminal_progress_is_a_bar_for_each_open_step(terminal):
    shown = terminal("stderr", 100)
    reporter = ConsoleReporter()
    with reporter.step("train [map]", 4) as first, reporter.progress("batch 7", 2) as second:
        first(2, "loss 0.5")
        second(1)
        reporter._bars.refresh()
    text = plain(shown.getvalue())
    assert "train [map]" in text
    assert "50 %" in text
    assert "loss 0.5" in text
    assert "batch 7" in text
    assert text.endswith(" s\n")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(terminal, monkeypatch):
    shown = terminal("stderr", 100)
    monkeypatch.setenv("TERM", "dumb")
    with ConsoleReporter().step("train", 4) as advance:
        advance(1)
    assert shown.getvalue().splitlines()[0] == "train: 25 %"


def test_a_step_that_fails_ends_its_bar(terminal):
    terminal("stderr", 100)
    reporter = ConsoleReporter()
    with pytest.raises(RuntimeError), reporter.step("train", 4):
        raise RuntimeError
    assert not reporter._bars.tasks
    assert not reporter._bars.live.is_started


def test_counted_items_are_the_same_items(capsys):
    assert list(counted(ConsoleReporter(), "abc", "opening", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == "opening: 33 %\nopening: 67 %\n"


COMMANDS = ["score", "run", "recipes", "report", "reference", "data preview", "data export", "data check"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "FORCE_COLOR", "NO_COLOR"])
def test_help_is_plain_and_names_no_types(run_as_printed, monkeypatch, command, variable):
    monkeypatch.setenv(variable, "true")
    status, text, errors = run_as_printed(*command.split(), "--help")
    assert (status, errors) == (0, "")
    assert f"Usage: epibench {command} [OPTIONS]" in text
    assert not re.search(r"[<>]\w|x>=|RANGE|INTEGER|\x1b|[│╭]", text.replace("RECIPE > mine.json", ""))


HEAVY = ("torch", "zarr", "lightning", "torchmetrics", "jax", "epibench.evaluation", "epibench.runs", "epibench.report")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        *([*command.split(), "--help"] for command in COMMANDS),
        ["score", "a.npz", "--nonsense"],
        ["score", "a.npz", "--device", "tpu"],
        ["score", "nowhere.npz"],
        ["score", "a.npz", "--members", "x"],
        ["run", "toy-regression", "--device", "tpu"],
        ["run", "toy-regression", "--executor", "cloud"],
        ["reference", "toy-regression", "--device", "tpu"],
        ["data", "check"],
        ["nonsense"],
        [],
    ],
    ids=" ".join,
)
def test_help_and_complaints_import_nothing_large(arguments, tmp_path):
    lines = [
        "import sys",
        f"sys.argv = ['epibench', *{arguments!r}]",
        "from epibench.cli import main",
        "try: main()",
        f"finally: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)",
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
    assert result.stderr.splitlines()[-1] == "[]"
    assert len(result.stderr.splitlines()) == (1 if result.returncode == 0 else 2)


FULL = "No space left on device; make room there, and the same command goes on"


def raising(error):
    def command(_):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InputError("recipe 'x' is unknown"), 2, "recipe 'x' is unknown"),
        (KeyboardInterrupt(), 130, "interrupted; what is finished is kept, the same command goes on from there"),
        (OSError(28, "No space left on device", "/a/b.json"), 1, f"/a/b.json: {FULL}"),
        (OSError(28, "No space left on device"), 1, FULL),
        (MemoryError(), 1, "not enough memory"),
        (
            RuntimeError("[enforce fail]\ncan't allocate memory"),
            1,
            "not enough memory: [enforce fail] can't allocate memory",
        ),
        (OSError("a library's own"), 1, "a library's own"),
        (RecursionError(), 2, "nested too deeply: a recipe, a setting or a file that was given"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_end_has_its_status_and_one_line(run, monkeypatch, error, status, message):
    monkeypatch.setattr("epibench.recipes.find_recipe", raising(error))
    assert run("recipes", "street-depth") == (status, "", f"epibench: {message}\n")


def test_other_errors_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("epibench.recipes.find_recipe", raising(ZeroDivisionError("a bug")))
    monkeypatch.setattr(sys, "argv", ["epibench", "recipes", "street-depth"])
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main()


@pytest.mark.parametrize("arguments", [["recipes"], ["score", "--help"]], ids=" ".join)
@pytest.mark.parametrize("both", [False, True], ids=["stdout", "both"])
def test_a_pipe_that_nobody_reads_is_no_traceback(arguments, both):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "epibench", *arguments]
    with os.fdopen(writer, "w") as stdout:
        result = subprocess.run(command, stdout=stdout, stderr=stdout if both else subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr or "") == (1, "")


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "epibench", "recipes"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, f"epibench: {FULL}\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_can_be_printed(encoding):
    result = epibench("reference", "--help", env={**os.environ, "PYTHONIOENCODING": encoding}, errors="replace")
    assert (result.returncode, result.stderr) == (0, "")
    assert "--prior-scale" in result.stdout


def test_typer_shows_no_traceback_of_its_own():
    assert app.pretty_exceptions_enable is False
    assert messages().stderr


def test_our_own_warnings_are_one_line():
    assert cli._warning("scenes are not kept", UserWarning, console.__file__, 7) == "epibench: scenes are not kept\n"
    assert "elsewhere.py:7: UserWarning" in cli._warning("of a library", UserWarning, "/elsewhere.py", 7)
