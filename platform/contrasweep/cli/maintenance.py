"""Commands on a study in its storage: its code, archiving and restoring trials, verification."""

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contrasweep.cli.options import Json, Storage, StoredStudy, flag, option, print_json
from contrasweep.cli.reports import load, name
from contrasweep.cli.watching import date, known_study
from contrasweep.defaults import STORAGE
from contrasweep.errors import SpecError, plural

if TYPE_CHECKING:
    from contrasweep.cli.schemas import CodeRow
    from contrasweep.storage.record import Record
    from contrasweep.storage.records import StudyRecords

MAX_LINES = 20
"""Findings that `verify` prints."""
NOW = "now"
Yes = Annotated[bool, flag("--yes", "Do it without asking.")]


def code(
    study: StoredStudy,
    storage: Storage = STORAGE,
    json: Json = False,
    diff: Annotated[
        tuple[str, str] | None,
        option(
            "Show what differs between two codes, by digest; `now` is the code there is.",
            metavar="A B",
        ),
    ] = None,
) -> None:
    """List which code made which trials, and what was archived."""
    from contrasweep.storage.archive import list_archived

    records = known_study(name(study), storage)
    by_code = _by_code(records)
    if diff is not None:
        from contrasweep.code import difference

        # Each is the beginning of a digest. One may be `now`: the present code of a trial that ran the other one. So
        # each call gets both.
        a, b = diff
        found = difference(
            _sources_of(records, by_code, a, b), _sources_of(records, by_code, b, a), diff
        )
        if json:
            print_json("code", {"a": a, "b": b, "changes": found.changes, "diff": found.diff})
        else:
            sys.stdout.write(found.diff)
            print(f"{found}")
        return
    archives = list_archived(records)
    rows = [_row(records, digest, trials) for digest, trials in by_code.items()]
    if json:
        archived = [
            {
                "name": archive.when,
                "reason": archive.reason,
                "trials": list(archive.trial_ids),
                "searches": dict(archive.searches),
            }
            for archive in archives
        ]
        print_json("code", {"code": rows, "archived": archived})
        return
    # Two lines a code: its trials and when these ended; below its digest the commit and some of its modules.
    for row in rows:
        digest = row["digest"] or "not recorded"
        print(f"{digest:<16}  {plural(row['trials'], 'trial')}, {row['from']} to {row['to']}")
        if not row["digest"]:
            continue
        commit = "no commit"
        if row["commit"]:
            commit = f"commit {row['commit'][:12]}{' with changes' if row['dirty'] else ''}"
        more = " ..." if len(row["modules"]) > 4 else ""
        print(f"{'':<16}  {commit}; {', '.join(row['modules'][:4])}{more}")
    for archive in archives:
        print(
            f"archived {archive.when}: {plural(len(archive.trial_ids), 'trial')} ({archive.reason})"
        )


def note(
    study: StoredStudy,
    words: Annotated[
        list[str], typer.Argument(metavar="[TRIAL] TEXT", help="What the note is on, and its text.")
    ],
    storage: Storage = STORAGE,
) -> None:
    """Write a note on a study, or on a trial of it. Reports show it, and MLflow after the next `run` or `sync`.

    It changes no trial and no verdict.
    """
    from contrasweep.live.logs import find_trial
    from contrasweep.results.notes import add_note

    records = known_study(name(study), storage)
    # The last word is the text; a word before it names the trial.
    *trials, text = words
    if len(trials) > 1:
        raise SpecError(
            "a note is one text, in quotes",
            place="TEXT",
            value=text,
            hint='note STUDY "good so far"',
        )
    trial_id = find_trial(records, trials[0]) if trials else ""
    add_note(records, text, trial_id)


def clean(
    study: StoredStudy,
    storage: Storage = STORAGE,
    keep: Annotated[
        Literal["best_of_arm", "confirmed", "none"],
        option(
            "Whose checkpoints stay: the best trial's of each arm, those of the table, or nobody's."
        ),
    ] = "best_of_arm",
    dry_run: Annotated[bool, flag("--dry-run", "Say what would go, and delete nothing.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete checkpoints of finished trials, and nothing else.

    Says first how many GiB go, and what nobody can ask of the study afterwards.
    """
    from contrasweep.running import publish
    from contrasweep.storage.lease import exclusive_driver

    records = known_study(name(study), storage)
    plan = publish.plan_cleaning(load(records.study, storage), keep)
    if not json:
        print(
            f"{records.study}: {plan.gib:.3g} GiB of checkpoints of {plural(len(plan.trials), 'finished trial')} go, "
            f"those of {plural(plan.kept, 'trial')} stay",
            *plan.lost,
            sep="\n",
        )
    if plan.trials and not dry_run:
        _ask(f"Delete {plan.gib:.3g} GiB? They cannot be restored.", yes)
        with exclusive_driver(records):
            # Nobody else writes now. What has changed since the question was asked is planned anew.
            results = load(records.study, storage)
            plan = publish.plan_cleaning(results, keep)
            publish.clean(results, plan)
    if json:
        document = {name: value for name, value in vars(plan).items() if name != "keys"}
        print_json("clean", {**document, "deleted": bool(plan.trials) and not dry_run})


def remove(
    study: StoredStudy,
    storage: Storage = STORAGE,
    arm: Annotated[str | None, option("Only trials of this arm.")] = None,
    status: Annotated[
        str | None, option("Only trials of this status: failed, done, pruned...")
    ] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Take trials out of a study.

    They move to its folder archive/, from where `restore` puts them back.
    """
    from contrasweep.running import upkeep

    records = known_study(name(study), storage)
    # Without --arm and --status all trials are chosen.
    chosen = upkeep.removable(records, arm, status)
    if chosen:
        _ask(f"Remove {plural(len(chosen), 'trial')} of {records.study}?", yes)
    archive_name = upkeep.remove(records, chosen) if chosen else ""
    if json:
        print_json("remove", {"removed": chosen, "archived": archive_name})
    elif chosen:
        print(
            f"{plural(len(chosen), 'trial')} moved to {records.study}/archive/{archive_name}; undo it by contrasweep "
            "restore"
        )
    else:
        print("there are no such trials")


def restore(
    study: StoredStudy,
    when: Annotated[
        str | None, typer.Argument(help="The name in archive/; without it, the newest.")
    ] = None,
    storage: Storage = STORAGE,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Put trials back that were removed or run again.

    What was made in their place is archived.
    """
    from contrasweep.running import upkeep
    from contrasweep.storage.archive import find_archived

    records = known_study(name(study), storage)
    # Found before the question is asked, and by that name again, so that what is restored is what was shown.
    shown = find_archived(records, when)
    _ask(
        f"Restore {plural(len(shown.trial_ids), 'trial')} of {records.study} as they were before {shown.when}?",
        yes,
    )
    restored = upkeep.restore(records, shown.when)
    if json:
        print_json("restore", {"restored": list(restored.trial_ids), "archived": restored.when})
    else:
        print(
            f"{plural(len(restored.trial_ids), 'trial')} restored from {records.study}/archive/{restored.when}"
        )


def verify(
    study: StoredStudy,
    storage: Storage = STORAGE,
    repair: Annotated[
        bool,
        flag("--repair", "Put what is broken aside, in archive/, so that it is made again."),
    ] = False,
    json: Json = False,
) -> None:
    """Read every file of a study again, and name what is broken.

    Exit status: 0 where nothing broken is left, else 1.
    """
    from contrasweep.live.overview import no_such_study
    from contrasweep.results.ledger import DECLARED
    from contrasweep.running.upkeep import verify as examine
    from contrasweep.storage.records import StudyRecords

    # Any file shows that the study exists, since its study.json may be broken or gone. A campaign is no
    # study: it has the file `DECLARED`.
    records = StudyRecords(storage, name(study))
    prefix = f"{records.study}/"
    if next(records.store.list(prefix), None) is None or records.store.exists(prefix + DECLARED):
        raise no_such_study(records.study, storage)
    result = examine(records, repair=repair)
    if json:
        findings = [vars(finding) | {"outcome": finding.outcome} for finding in result.findings]
        print_json("verify", vars(result) | {"findings": findings, "sound": result.sound})
        raise typer.Exit(0 if result.sound else 1)
    for finding in result.findings[:MAX_LINES]:
        outcome = finding.outcome
        if finding.repair and not repair:
            outcome = f"with --repair {outcome}"
        print(f"{finding.file}: {finding.problem}; {outcome}")
    unlisted = len(result.findings) - MAX_LINES
    if unlisted > 0:
        print(f"... and {unlisted} more (all of them with --json)")
    read = f"{plural(result.files, 'file')} of {plural(result.trials, 'trial')}"
    print(f"{records.study}: {read} read, {len(result.findings)} broken")
    if result.archived:
        print(
            f"what was archived lies in {records.study}/archive/{result.archived}; run the study again"
        )
    raise typer.Exit(0 if result.sound else 1)


def _by_code(records: "StudyRecords") -> "dict[str, list[Record]]":
    """Return digest -> the records of the trials that ran this code, in the order in which the codes were used.

    A trial that was interrupted and went on with other code is in the list of each of its codes. The digest "" stands
    for code that was not recorded.
    """
    from contrasweep.storage import compact

    by_code: dict[str, list[Record]] = defaultdict(list)
    recorded = compact.read_records(records).values()
    for record in sorted(recorded, key=lambda record: record.ended):
        for digest in (*record.code.earlier, record.code.digest):
            by_code[digest].append(record)
    return dict(by_code)


def _row(records: "StudyRecords", digest: str, trials: "list[Record]") -> "CodeRow":
    """Return a row of the table of codes: the code `digest`, how many `trials` it made, and when they ended.

    `trials` are the records of these trials, one at least. Commit and modules are empty where the code was not kept.
    """
    from contrasweep.storage.code_files import read_version

    version = read_version(records, digest)
    ended = [record.ended for record in trials]
    return {
        "digest": digest,
        "trials": len(trials),
        "from": date(min(ended)),
        "to": date(max(ended)),
        "commit": version.commit if version else "",
        "dirty": bool(version and version.dirty),
        "modules": list(version.modules) if version else [],
        "trainables": sorted({record.trainable for record in trials}),
    }


def _sources_of(
    records: "StudyRecords", by_code: "dict[str, list[Record]]", word: str, other: str
) -> dict[str, str]:
    """Return the source files of one of the two codes that are compared, file -> text.

    `word` is how the user has named this code: by the beginning of its digest, or as `now`. `now` is the code that a
    trial would run now. It says nothing of which trial, so that it is taken for a trial which has run the code `other`,
    the second one that the user has named. `by_code` is digest -> records of the trials that ran this code.

    `SpecError` where the digests of no code of the study, or of several, begin with the word. `StorageError` where the
    sources of the code were not kept.
    """
    from contrasweep.code import CurrentCode
    from contrasweep.errors import StorageError
    from contrasweep.imports import import_from_here
    from contrasweep.planning.code_comparison import texts
    from contrasweep.storage.code_files import read_sources

    start = other if word == NOW else word  # the beginning of a digest
    digests = [digest for digest in by_code if digest]
    matches = [digest for digest in digests if digest.startswith(start)]
    if len(matches) != 1:
        raise SpecError(
            "this is no code of the study's trials",
            place="--diff",
            value=start,
            hint=f"known: {', '.join([*digests, NOW])}",
        )
    (digest,) = matches
    if word == NOW:
        import_from_here()  # the trials' package is found where `run` finds it
        record = by_code[digest][0]
        # The trainable of a stored trial is known by its path, so that no function is given ({}).
        return texts(CurrentCode({}).of(record.trainable, record.config))
    sources = read_sources(records, digest)
    if sources is None:
        raise StorageError(
            f"the sources of code {digest} were not kept in {records.storage}/{records.study}/code"
        )
    return sources


def _ask(question: str, yes: bool) -> None:
    """Ask `question` on the terminal, unless `yes` was passed; anything but a yes ends the command (`typer.Abort`).

    `SpecError` where there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise SpecError(
            "this asks first", place="--yes", hint="there is no terminal to ask on; pass --yes"
        )
    typer.confirm(question, abort=True)
