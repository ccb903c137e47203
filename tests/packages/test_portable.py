"""The source runs on Windows and in any locale: nothing in it needs POSIX, or guesses an encoding."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import thera

SOURCE = Path(thera.__file__).parent
#: Modules and names that Windows lacks.
MODULES = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {"os": "chown fchmod fork forkpty getegid geteuid getgid getloadavg getpgid getpgrp getuid killpg"}
NAMES["os"] += " mkfifo nice posix_fadvise posix_fallocate pread pwrite register_at_fork sched_getaffinity"
NAMES["os"] += " sched_setaffinity setsid statvfs sysconf uname wait wait4"
NAMES |= {"signal": "SIGALRM SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGTSTP SIGUSR1 SIGUSR2 alarm"}
NAMES["signal"] += " pause pthread_kill pthread_sigmask setitimer sigwait"
FOLDERS = ("/dev/", "/etc/", "/proc/", "/sys/", "/tmp", "/usr/", "/var/")
#: Where such a thing is looked for first, or only compared with.
GUARDED = {
    "cli/pipes.py: /dev/stdin",
    "cli/pipes.py: /dev/stdout",
    "dask/clusters.py: signal.pthread_sigmask",
    "evaluation/bench.py: resource",
    "evaluation/bench.py: os.sched_getaffinity",
    "files.py: fcntl",
    "memory.py: /proc/meminfo",
    "memory.py: /sys/fs/cgroup",
    "memory.py: os.sysconf",
    "models/engine.py: os.sched_getaffinity",
}


def posix(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in NAMES.get(module, "").split():
                yield f"{module}.{name}"
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in MODULES)
            case ast.ImportFrom(module=str(module)) if module in MODULES:
                yield module
            case ast.Constant(value=str(text)) if text.startswith(FOLDERS):
                yield text


def guessed_encodings(tree: ast.AST) -> Iterator[str]:
    """Calls that read or write text in the encoding of the locale."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        if "encoding" in named:
            continue
        match call.func:
            case ast.Name(id="open"):
                mode = call.args[1] if len(call.args) > 1 else named.get("mode", ast.Constant("r"))
                if "b" not in ast.unparse(mode):
                    yield ast.unparse(call)
            case ast.Attribute(attr="read_text" | "write_text" as name):
                if len(call.args) <= (name == "write_text"):
                    yield ast.unparse(call)
            case ast.Attribute(value=ast.Name(id="subprocess")):
                if "text" in named or "universal_newlines" in named:
                    yield ast.unparse(call)


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_posix_is_used_only_where_its_absence_is_dealt_with():
    assert {f"{name}: {use}" for name, tree in trees() for use in posix(tree)} == GUARDED


def test_text_is_read_and_written_in_a_named_encoding():
    assert [f"{name}: {call}" for name, tree in trees() for call in guessed_encodings(tree)] == []


@pytest.mark.parametrize("code", ["import fcntl", "os.fork()", "signal.SIGHUP", "x = '/tmp/a'"])
def test_the_first_search_finds_what_it_looks_for(code):
    assert len(list(posix(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code", ["open(p)", "open(p, 'w')", "p.read_text()", "p.write_text(t)", "subprocess.run(c, text=True)"]
)
def test_the_second_search_finds_what_it_looks_for(code):
    assert len(list(guessed_encodings(ast.parse(code)))) == 1
    assert not list(guessed_encodings(ast.parse("open(p, 'rb'), p.read_text('utf-8'), open(p, encoding=e)")))


def test_a_terminal_without_our_signs_gets_question_marks_and_no_error():
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}  # as in a pipe on Windows
    command = [sys.executable, "-m", "thera", "--help"]
    run = subprocess.run(command, env=environment, capture_output=True, encoding="cp1252")
    assert run.returncode == 0, run.stderr
    assert "Usage: thera" in run.stdout and "Traceback" not in run.stderr
