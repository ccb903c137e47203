"""`thera man`: the manual page, made from the help of all commands."""

from collections.abc import Iterator
from inspect import cleandoc

import click

from thera._version import __version__


@click.command("man")
def command() -> None:
    """Print the manual page.

    \b
    thera man | man -l -
    thera man > /usr/local/share/man/man1/thera.1
    """
    from thera.cli.main import cli

    click.echo("\n".join(page(cli)))


def page(group: click.Group) -> Iterator[str]:
    """The lines of a page about a group of commands, for troff."""
    ctx = click.Context(group, info_name="thera")
    first, _, rest = (group.help or "").partition("\n\n")
    yield f'.TH THERA 1 "" "thera {__version__}" "User Commands"'
    yield from (".SH NAME", rf"thera \- {_plain(first)}")
    yield from (".SH SYNOPSIS", r".B thera", r"\fICOMMAND\fR [\fIARGUMENTS\fR]...")
    yield from (".SH DESCRIPTION", *_text(rest))
    yield ".SH COMMANDS"
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        yield from _command(click.Context(found, info_name=name, parent=ctx), found)


def _command(ctx: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield f".SS thera {ctx.info_name} {_plain(usage)}"
    yield from _text(command.help or "")
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", rf"\fB{_plain(record[0])}\fR", _plain(record[1]))


def _text(text: str) -> Iterator[str]:
    """Paragraphs; those that begin with \\b keep their lines."""
    for paragraph in cleandoc(text).split("\n\n"):
        as_is, lines = paragraph.startswith("\b"), paragraph.strip("\b\n ").splitlines()
        yield ".PP"
        if as_is:
            yield from (".nf", *(_plain(line.strip()) for line in lines), ".fi")
        else:
            yield _plain(" ".join(line.strip() for line in lines))


def _plain(text: str) -> str:
    r"""A line that troff shows as it is.

    >>> _plain("'a' -b \\n")
    "\\&'a' \\-b \\en"
    """
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(c if c.isascii() else rf"\[u{ord(c):04X}]" for c in escaped)
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
