"""The command that judges results which others made."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from contrasweep.cli.options import Json, Require, end_as, required, width
from contrasweep.errors import SpecError, check_known
from contrasweep.text_table import WIDTH

FORMATS = ("text", "markdown", "latex", "html", "csv")
OPTIONS = ("arm", "metric", "pair", "item", "group", "block", "reference", "mode", "margin", "alpha", "over")


def add_to(app: typer.Typer) -> None:
    """Add the command to the main application."""
    app.command()(judge)


def _column(text: str) -> typer.models.OptionInfo:
    return typer.Option(metavar="COLUMN", help=text)  # type: ignore[no-any-return]


def judge(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A .csv, .tsv, .jsonl or .parquet file, a folder of runs, or mlflow:ADDRESS:EXPERIMENT.",
        ),
    ],
    arm: Annotated[str, _column("What is compared; several with commas.")] = "",
    metric: Annotated[str, _column("The values.")] = "",
    pair: Annotated[str, _column("By what runs of two arms belong together, as seed,fold; none: unpaired.")] = "",
    item: Annotated[str, _column("The test item that a row scores.")] = "",
    group: Annotated[str, _column("What items belong together.")] = "",
    block: Annotated[str, _column("The task or dataset of a row.")] = "",
    reference: Annotated[str, typer.Option(metavar="ARM", help="Compare all others with it; none: every two.")] = "",
    mode: Annotated[str, typer.Option(help="max: larger values are better; or min.")] = "",
    margin: Annotated[float | None, typer.Option(min=0, help="The smallest difference of interest.")] = None,
    alpha: Annotated[float, typer.Option(help="The chance of any false verdict.")] = 0.05,
    over: Annotated[
        Literal["further", "these", "each"],
        typer.Option(help="What verdicts over tasks hold for: further tasks like these, these alone, each by itself."),
    ] = "further",
    require: Require = "",
    board: Annotated[
        bool, typer.Option("--board", help="Rank all arms, each with the ranks that it may have; no table.")
    ] = False,
    format: Annotated[str, typer.Option(help="text, markdown, latex, html, or csv: a row a comparison.")] = "text",
    json: Json = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File in place of standard output.")] = None,
) -> None:
    """Judge results that there are: which arm is better, how sure.

    One row a run, or a run's score of an item or on a task. The first line says how the arms are compared, the second
    which column was taken as what. A role that is not said is guessed, and what is not clear is refused.
    """
    from contrasweep.judging.judged import judge as judge_table
    from contrasweep.judging.judged import rank
    from contrasweep.results.requirement import Requirement
    from contrasweep.terminal_text import write

    check_known(format, "formats", FORMATS, "there is no such format", place="--format")
    wanted = Requirement.parse(require) if require else None
    options = {name: context.params[name] for name in OPTIONS}
    if board:
        if format == "latex" or margin is not None or over != "further" or reference or require:
            raise SpecError("a board takes no --margin, --over, --reference, --require and no LaTeX", place="--board")
        judged: Any = rank(source, alpha=alpha, **{name: options[name] for name in OPTIONS[:6]}, mode=mode)
    else:
        judged = judge_table(source, **options)
    outcome = judged.required(wanted) if wanted else None
    if json:
        from contrasweep.cli.documents import dumps

        document = judged.to_dict() | ({} if board else {"required": required(require, outcome)})
        write((dumps("board" if board else "judge", document) + "\n").encode(), output)
    else:
        wide = (width() if output is None else None) or WIDTH
        write((judged.to_text(wide) if format == "text" else getattr(judged, f"to_{format}")()).encode(), output)
    if outcome:
        end_as(require, outcome)
