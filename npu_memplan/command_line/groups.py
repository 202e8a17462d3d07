"""Options in groups: the heading is part of the option, and `--help` has one section a heading.

Invariant: every option is shown once by `--help-all`, and those that most users want by `--help`; headings come in the
order of the options, those without one last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class _Grouped(click.Option):
    """An option of the section `group` of --help."""

    def __init__(self, *declarations: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.group = group


def _print_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_ALL = f"{__name__}.all"


class GroupedCommand(click.Command):
    """A command whose --help has the options under their headings; `rare` ones, by their flags, in --help-all alone."""

    def __init__(self, *arguments: Any, rare: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rare = frozenset(rare.split())
        if self.rare:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_all,
                    help="Show the options for special cases too, and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if self.rare & {*parameter.opts} and not ctx.meta.get(_ALL):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "group", ""), []).append(record)
        for heading in sorted(sections, key=lambda name: not name):
            with formatter.section(heading or "Options"):
                formatter.write_dl(sections[heading])


def group(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """`click.option` for options of the section `heading`."""

    def option(*declarations: str, **settings: Any) -> Callable[[Any], Any]:
        return click.option(*declarations, cls=_Grouped, group=heading, **settings)

    return option
