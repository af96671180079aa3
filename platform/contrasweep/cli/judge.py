"""The command that judges results which others made."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from contrasweep.cli.options import (
    Json,
    MaxConcurrent,
    Output,
    Require,
    Sets,
    Storage,
    end_as,
    flag,
    line_width,
    option,
    print_json,
    required,
)
from contrasweep.defaults import STORAGE
from contrasweep.errors import SpecError, check_known
from contrasweep.terminal_text import write

FORMATS = ("text", "markdown", "latex", "html", "csv")
# options of `judge` that are arguments of the same name of the functions that judge
JUDGE_OPTIONS = (
    "arm",
    "metric",
    "pair",
    "item",
    "group",
    "block",
    "reference",
    "mode",
    "at",
    "reader",
    "i_know",
)


def _column(text: str) -> typer.models.OptionInfo:
    """Return a command-line option that takes the name of a column; `text` is its help."""
    return option(text, metavar="COLUMN")


At = Annotated[
    str,
    option("Which value of a run's curve counts.", metavar="last|best-of-validation:METRIC|step:N"),
]
Reader = Annotated[
    str,
    option(
        "A function of yours that reads the source, called with its text.", metavar="MODULE:NAME"
    ),
]


def judge(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A .csv, .tsv, .json, .jsonl or .parquet file, a folder of runs, or mlflow:, optuna: or "
            "contrasweep:ADDRESS:NAME.",
        ),
    ],
    arm: Annotated[str, _column("What is compared; several with commas.")] = "",
    metric: Annotated[str, _column("The values; several if each arm, or each task, has one.")] = "",
    pair: Annotated[
        str, _column("By what runs of two arms belong together, as seed,fold; none: unpaired.")
    ] = "",
    item: Annotated[str, _column("The test item that a row scores.")] = "",
    group: Annotated[str, _column("What items belong together.")] = "",
    block: Annotated[str, _column("The task or dataset of a row.")] = "",
    reference: Annotated[
        str, option("Compare all others with it; none: every two.", metavar="ARM")
    ] = "",
    mode: Annotated[str, option("max: larger values are better; or min.")] = "",
    margin: Annotated[float | None, option("The smallest difference of interest.", min=0)] = None,
    alpha: Annotated[
        float | None,
        option("The chance of any false verdict; by default that of a study, or 0.05."),
    ] = None,
    over: Annotated[
        Literal["further", "these", "each"] | None,
        option(
            "What verdicts over tasks hold for: further tasks like these, these alone, each by itself."
        ),
    ] = None,
    at: At = "last",
    reader: Reader = "",
    i_know: Annotated[
        bool,
        flag("--i-know", "Take the best value of the metric itself, a maximum over noise."),
    ] = False,
    require: Require = "",
    board: Annotated[
        bool,
        flag("--board", "Rank all arms, each with the ranks that it may have; no table."),
    ] = False,
    format: Annotated[
        str, option("text, markdown, latex, html, or csv: a row per comparison.")
    ] = "text",
    json: Json = False,
    output: Output = None,
) -> None:
    """Judge results that there are: which arm is better, how sure.

    A row is a run, or a run's score of an item or on a task. The first line says how the arms are compared, the second
    which column was taken as what. Which column has the arm, the metric and so on is guessed where no option says it;
    where it is not clear, the source is refused.
    """
    from contrasweep.judging.judged import judge as judge_table
    from contrasweep.judging.judged import rank
    from contrasweep.results.requirement import Requirement

    check_known(
        format, "formats beside --json", FORMATS, "there is no such format", place="--format"
    )
    requirement = Requirement.parse(require) if require else None
    # Both ways of judging take these options by the same names.
    options = {name: context.params[name] for name in JUDGE_OPTIONS}
    if board:
        if format == "latex" or margin is not None or over or reference or require:
            raise SpecError(
                "a board takes no --margin, --over, --reference, --require and no LaTeX",
                place="--board",
            )
        del options["reference"]  # a board compares every two arms
        judged: Any = rank(source, alpha=0.05 if alpha is None else alpha, **options)
    else:
        judged = judge_table(source, margin=margin, alpha=alpha, over=over, **options)
    outcome = judged.required(requirement) if requirement else None
    if json:
        document = judged.to_dict() | ({} if board else {"required": required(require, outcome)})
        print_json("board" if board else "judge", document, output)
    else:
        wide = line_width(output)
        # `judged` has a method for each format.
        text = judged.to_text(wide) if format == "text" else getattr(judged, f"to_{format}")()
        write(text.encode(), output)
    end_as(require, outcome)


def noise(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A study or campaign: module:NAME or .yaml; or as for `judge`."
        ),
    ],
    same: Annotated[
        str,
        option("What ran twice: two arms of a source, or one of a study.", metavar="ARM[,ARM]"),
    ] = "",
    arm: Annotated[str, _column("What names the arm.")] = "",
    metric: Annotated[str, _column("The values; several if each arm, or each task, has one.")] = "",
    pair: Annotated[str, _column("What runs of both have in common; none: unpaired.")] = "",
    at: At = "last",
    reader: Reader = "",
    sets: Sets = None,
    seeds: Annotated[int, option("Of a study: how many seeds it trains twice.", min=2)] = 8,
    storage: Storage = STORAGE,
    max_concurrent: MaxConcurrent = None,
    json: Json = False,
    output: Output = None,
) -> None:
    """Run an arm twice: how noisy it is, and what seeds can detect.

    It says whether a seed alone decides a result, how far runs spread, and what 4, 8 and 16 seeds can detect. The exit
    status is 5 where the arm differs surely from itself. `plan --noise` and a campaign's `noise` take what --json
    writes.
    """
    from contrasweep.judging.sources import SERVICES
    from contrasweep.study.file import YAML

    # A declaration is trained: a .yaml file, or module:NAME, which is neither an address of a service nor a path.
    kind, colon, _ = source.partition(":")
    is_table = reader or kind in SERVICES or Path(source).exists()
    if source.endswith(YAML) or (colon and not is_table):
        from contrasweep.campaign.campaign import train_twice

        found = train_twice(source, same, seeds, sets or [], storage, max_concurrent)
    else:
        from contrasweep.judging.judged import noise_of

        found = noise_of(source, same, arm=arm, metric=metric, pair=pair, at=at, reader=reader)
    if json:
        print_json("noise", found.to_dict(), output)
    else:
        write((found.to_text() + "\n").encode(), output)
    if found.failed:
        raise typer.Exit(5)
