"""Commands on a campaign: decide on a candidate, and show what was decided so far."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from contrasweep.cli.options import (
    AcceptCode,
    Cluster,
    Json,
    MaxConcurrent,
    Output,
    Require,
    RerunChanged,
    Sets,
    Storage,
    StudyTracking,
    changed_code,
    end_as,
    flag,
    line_width,
    option,
    print_json,
    required,
)
from contrasweep.defaults import OF_STUDY, STORAGE
from contrasweep.errors import SpecError
from contrasweep.terminal_text import write

Campaign = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="module:NAME, or a .yaml file")]
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def decide(
    campaign: Campaign,
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE",
            help="An arm: module:NAME, a .yaml file, or `incumbent` for --set to change.",
        ),
    ],
    sets: Sets = None,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    json: Json = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Say what it would train; train and write nothing.")
    ] = False,
    name: Annotated[
        str, option("What the candidate is called. Default: its file, NAME or --set.")
    ] = "",
    by: Annotated[str, option("Who asks: a person or an agent.")] = "",
    why: Annotated[str, option("Why it is tried, in a line.")] = "",
    more: Annotated[int, option("Fresh seeds more for a candidate that is undecided.", min=0)] = 0,
    rerun_changed: RerunChanged = False,
    accept_code: AcceptCode = False,
    max_concurrent: MaxConcurrent = None,
    cluster: Cluster = None,
    require: Require = "",
) -> None:
    """Decide whether a candidate may be kept.

    It is screened on a few seeds and confirmed on fresh ones, at a level that counts all decisions of the campaign.
    SKILL.md in the folder of this package tells coding agents how to use it.
    """
    from contrasweep.campaign.campaign import load_campaign, load_candidate
    from contrasweep.campaign.decision import INCUMBENT
    from contrasweep.results.requirement import Requirement

    requirement = Requirement.parse(require) if require else None
    declared = load_campaign(campaign)
    # `incumbent` means the last candidate that was kept, which --set then changes.
    base = declared.incumbent_now(storage=storage) if candidate == INCUMBENT else declared.incumbent
    arm = load_candidate(candidate, base, sets or [])
    if not name:
        # What --set changes, else the stem of the file or NAME of `module:NAME`.
        stem = Path(candidate).stem if candidate.endswith((".yaml", ".yml")) else candidate
        changed = "+".join(path.removeprefix("config.") for path in sets or ())
        short = (changed or stem).rpartition(":")[2]
        name = NOT_IN_NAMES.sub("-", short)[:100].strip("-.") or "candidate"
    if dry_run:
        expected = declared.outlook(arm, name, storage=storage, more=more)
        if json:
            print_json("outlook", expected.to_dict())
        else:
            print("\n".join(expected.lines()))
        return
    decision = declared.decide(
        arm,
        name,
        storage=storage,
        tracking=tracking,
        by=by,
        why=why,
        more=more,
        changed=changed_code(rerun_changed, accept_code),
        max_concurrent=max_concurrent,
        cluster=cluster,
    )
    # The interval is of candidate minus incumbent, on fresh seeds; without it (None) the requirement stays open.
    outcome = None
    if requirement:
        outcome = requirement.outcome(
            decision.low, decision.high, declared.mode, declared.smallest_difference
        )
    if json:
        print_json("decide", decision.to_dict() | {"required": required(require, outcome)})
    else:
        print(decision)
    end_as(require, outcome)


def ledger(
    campaign: Annotated[
        str | None,
        typer.Argument(
            metavar="[CAMPAIGN]", help="module:NAME, a .yaml file or a name; left out: all studies."
        ),
    ] = None,
    storage: Storage = STORAGE,
    json: Json = False,
    format: Annotated[Literal["text", "html"], option("html: with a figure.")] = "text",
    output: Output = None,
) -> None:
    """Show what a campaign or all studies decided.

    Without a campaign, it lists the verdicts of all studies, and says which remain where all are one stream of tests.
    """
    from contrasweep.campaign.campaign import load_campaign, stored_history
    from contrasweep.campaign.history import comparisons_of
    from contrasweep.study.file import is_declaration

    if campaign is None:
        if format == "html":
            raise SpecError(
                "the figure is of a campaign",
                place="CAMPAIGN",
                hint="name one, or leave --format out",
            )
        comparisons = comparisons_of(storage)
        if json:
            print_json("comparisons", vars(comparisons), output)
        else:
            write(("\n".join(comparisons.lines(line_width())) + "\n").encode(), output)
        return
    # What is declared names the campaign, whose history lies in the storage.
    history = stored_history(
        load_campaign(campaign).name if is_declaration(campaign) else campaign, storage
    )
    if json:
        print_json("ledger", history.to_dict(), output)
    elif format == "html":
        write(history.to_html(), output)
    else:
        write(("\n".join(history.lines(line_width())) + "\n").encode(), output)
