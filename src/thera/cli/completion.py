"""`thera completion`: complete commands and options in a shell."""

import click

#: How each shell loads the script.
LOADING = {
    "bash": 'eval "$(thera completion bash)"',
    "zsh": 'eval "$(thera completion zsh)"',
    "fish": "thera completion fish | source",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(LOADING)))
def command(shell: str) -> None:
    """Print a script with which a shell completes commands, options and their values.

    Put one of these lines into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:

    \b
    eval "$(thera completion bash)"
    eval "$(thera completion zsh)"
    thera completion fish | source
    """
    from click.shell_completion import get_completion_class

    from thera.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(cli, {}, "thera", "_THERA_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
