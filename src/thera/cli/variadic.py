"""Options that take several values, as in `--scales 2 3 4`, which click does not have."""

from __future__ import annotations

import click


class VariadicCommand(click.Command):
    """A command whose repeatable options (`multiple=True`) take all values up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeatable = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for name in parameter.opts
        }
        expanded: list[str] = []
        current = None
        for i, argument in enumerate(args):
            if argument == "--":
                expanded += args[i:]
                break
            if argument in repeatable:
                current, taken = argument, 0
                if i + 1 == len(args):
                    expanded.append(argument)
                continue
            if argument.startswith("-") and not _is_number(argument):
                if current and not taken:
                    expanded.append(current)
                current = None
            if current:
                expanded.append(current)
                taken += 1
            expanded.append(argument)
        return super().parse_args(ctx, expanded)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
