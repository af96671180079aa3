"""Additions to `--help`: groups of commands, and an example for each command, which a test parses."""

from typing import Any

import typer
import typer.core

STUDY = "contrasweep.search_spaces.quickstart:STUDY"
ADDRESS = "--address http://HEAD:8265"
EXAMPLES = {
    "plan": [
        f"contrasweep plan {STUDY}",
        "contrasweep plan study.yaml --cluster inventory.yaml --set folds=3",
        "contrasweep plan study.yaml --noise noise.json",
    ],
    "run": [
        f"contrasweep run {STUDY}",
        "contrasweep run study.yaml --storage s3://BUCKET/studies --retry-failed",
    ],
    "evaluate": [
        "contrasweep evaluate quickstart --on digits",
        "contrasweep evaluate quickstart --with mypackage.scores:robustness",
        "contrasweep evaluate --model mypackage.networks:load --checkpoint resnet.pt --on digits",
    ],
    "sync": ["contrasweep sync quickstart --tracking http://MLFLOW:5000"],
    "ui": ["contrasweep ui --study quickstart --port 5001"],
    "init": ["contrasweep init mythesis", "contrasweep init --from sweep.yaml"],
    "list": [
        "contrasweep list losses",
        "contrasweep list losses ocl",
        "contrasweep list methods mypackage.method:train",
        "contrasweep list studies mypackage.studies",
    ],
    "schema": ["contrasweep schema > study.schema.json", "contrasweep schema report"],
    "mcp": [
        "contrasweep mcp --storage runs --folder studies",
        "contrasweep mcp --storage runs --folder studies --allow run --gpu-hours 2",
    ],
    "doctor": ["contrasweep doctor --storage s3://BUCKET/studies"],
    "report": [
        "contrasweep report quickstart --format latex",
        "contrasweep report quickstart --format html --output report.html",
        "contrasweep report quickstart --format latex --metric knn1,knn5 --percent --digits 1 --label tab:main",
        "contrasweep report quickstart --rows batch_size --columns arm --metric accuracy",
    ],
    "bundle": ["contrasweep bundle quickstart -o quickstart.zip"],
    "compare": [
        "contrasweep compare quickstart ocl supcon",
        "contrasweep compare quickstart ocl supcon --at batch_size=8",
    ],
    "judge": [
        "contrasweep judge runs.csv",
        "contrasweep judge runs.csv --arm model --metric accuracy --pair seed,fold --reference base --margin 0.005",
        "contrasweep judge scores.jsonl --item example_id --format markdown",
    ],
    "noise": [
        "contrasweep noise study.yaml --seeds 8 --json -o noise.json",
        "contrasweep noise runs.csv --same base,base2",
    ],
    "diff": ["contrasweep diff pilot main-1", "contrasweep diff pilot:ocl main-1:ocl"],
    "decide": [
        "contrasweep decide campaign.yaml candidate.yaml --by ada --why 'larger batches'",
        "contrasweep decide campaign.yaml incumbent --set config.loss.temperature=0.05 --dry-run",
    ],
    "ledger": [
        "contrasweep ledger campaign.yaml --format html --output ledger.html",
        "contrasweep ledger",
    ],
    "submit": [
        f"contrasweep submit {STUDY} {ADDRESS} --storage s3://BUCKET/studies --tracking http://MLFLOW:5000",
        "contrasweep submit study.yaml --slurm --max-concurrent 8 --sbatch time=240 --sbatch gpus-per-node=1",
    ],
    "status": [
        f"contrasweep status JOB {ADDRESS}",
        "contrasweep status quickstart",
        "contrasweep status quickstart --json",
    ],
    "logs": [
        f"contrasweep logs JOB {ADDRESS} --follow",
        "contrasweep logs quickstart 3f2a91c0 --follow",
    ],
    "watch": ["contrasweep watch quickstart --storage s3://BUCKET/studies"],
    "studies": ["contrasweep studies --storage s3://BUCKET/studies"],
    "jobs": [f"contrasweep jobs {ADDRESS}"],
    "stop": [f"contrasweep stop JOB {ADDRESS}", "contrasweep stop quickstart"],
    "code": ["contrasweep code quickstart", "contrasweep code quickstart --diff 3f2a now"],
    "note": [
        "contrasweep note quickstart 'the learning rate was too high'",
        "contrasweep note quickstart 3f2a91c0 '#odd the loss jumps at epoch 3'",
    ],
    "clean": [
        "contrasweep clean quickstart --dry-run",
        "contrasweep clean quickstart --keep confirmed",
    ],
    "remove": ["contrasweep remove quickstart --arm ocl --status failed"],
    "restore": ["contrasweep restore quickstart"],
    "verify": ["contrasweep verify quickstart", "contrasweep verify quickstart --repair"],
    "data stage": [
        "contrasweep data stage digits-lt",
        "contrasweep data stage ombria --source OMBRIA/",
    ],
    "data list": ["contrasweep data list --known"],
    "data show": ["contrasweep data show digits-lt"],
    "data verify": ["contrasweep data verify digits-lt"],
}
"""Command, with the group it stands in -> lines that can be typed."""


GROUPS = {
    "Study": ["init", "plan", "run", "evaluate", "watch", "logs", "status", "stop", "studies"],
    "Look": ["report", "compare", "judge", "noise", "diff", "note", "bundle", "ui", "sync"],
    "Referee": ["decide", "ledger"],
    "Data": ["data"],
    "Cluster": ["submit", "jobs", "doctor"],
    "Code and records": ["code", "clean", "remove", "restore", "verify"],
    "Reference": ["list", "schema", "mcp"],
}
"""Heading -> commands below it in `contrasweep --help`."""


class GroupedCommands(typer.core.TyperGroup):
    """A Typer group whose help lists its commands under the headings of `GROUPS`, in that order."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each heading, with a line for each of its commands: name and short help."""
        wide = max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                # Click indents a line by two columns, and puts two more between name and help.
                limit = formatter.width - wide - 6
                formatter.write_dl(
                    [
                        (f"{name:<{wide}}", self.commands[name].get_short_help_str(limit))
                        for name in names
                    ]
                )


def add_examples(app: typer.Typer, group: str = "") -> None:
    """Show each command's examples of `EXAMPLES` below its help, also of the groups in `app`.

    `group` is the name of the group that `app` is, with a space behind it: `data `; "" for the program itself.
    """
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        lines = EXAMPLES.get(f"{group}{name}", [])
        # A line with this sign alone tells Click to keep the lines below it as they are.
        command.epilog = "\n".join(
            ["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {x}" for x in lines)]
        )
    for part in app.registered_groups:
        if part.typer_instance is not None:
            add_examples(part.typer_instance, f"{group}{part.name} ")
