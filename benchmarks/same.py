"""Does a change keep the numbers? Trains small studies from a commit and from the working tree; compares to the bit.

    python -m benchmarks.same                   against HEAD, or its parent where nothing is uncommitted
    python -m benchmarks.same --base v0.1.0     against any commit

Every report of every trial is compared, and every score of a test item. Times, memory and trial ids are not. It prints
`equal`, or each study's first differences and exits with 1.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDIES = Path("benchmarks/same_studies")
"""One file a study, as each tree has it; the base takes those of the working tree that it lacks."""
NUMBERS = """
import json, sys
import contrasweep as cs
results = cs.load(sys.argv[1], storage=sys.argv[2])
trials = results.to_frame().set_index("trial_id")
keys = {i: " ".join(f"{n}={trials.at[i, n]}" for n in ("arm", *results.axes, "fold", "seed")) for i in trials.index}
curves = results.curves().drop(columns="time")
numbers = {k: {"status": str(trials.at[i, "status"])} for i, k in keys.items()}
for row in curves.to_dict("records"):
    key, step = keys[row.pop("trial_id")], row.pop("step")
    kept = {n: v for n, v in row.items() if v == v and not n.endswith(("_s", "seconds"))}
    numbers[key] |= {f"step {step} {n}": float(v).hex() for n, v in kept.items()}
for i, key in keys.items():
    for name, scores in results.items(i).items():
        numbers[key] |= {f"item {n} {name}": str(v) for n, v in enumerate(scores)}
json.dump(numbers, sys.stdout)
"""


def numbers(tree: Path, study: Path, storage: Path) -> dict[str, dict[str, str]]:
    """Train `study` with the code of `tree`: trial (in words) -> metric -> value as exact text."""
    runs = str(storage / "runs")  # below the working folder, which is one to import from
    python = {"PYTHONPATH": str(tree / "platform"), "CONTRASWEEP_STORAGE": runs}
    environment = {**os.environ, **python}
    command = [
        sys.executable,
        "-m",
        "contrasweep",
        "run",
        str(study),
        "--tracking",
        "none",
        "--json",
    ]
    done = subprocess.run(
        command, cwd=storage, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{study.stem} ended with {done.returncode} in {tree}:\n{done.stderr}")
    command = [sys.executable, "-c", NUMBERS, study.stem, runs]
    dumped = subprocess.run(
        command, cwd=storage, env=environment, capture_output=True, text=True, check=True
    )
    return dict(json.loads(dumped.stdout))


def differences(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> Iterator[str]:
    """Yield a line for each number that differs."""
    for trial in sorted(before.keys() | after.keys()):
        old = before.get(trial, {})
        other = after.get(trial, {})
        for name in sorted(old.keys() | other.keys()):
            if old.get(name) != other.get(name):
                yield f"{trial}: {name}: {old.get(name)} before, {other.get(name)} now"


def compared(base: Path, names: list[str]) -> bool:
    """Train each study with both versions and compare; whether all results are equal."""
    equal = True
    for study in sorted((ROOT / STUDIES).glob("*.yaml")):
        if names and study.stem not in names:
            continue
        found = []
        for tree in (base, ROOT):
            study_folder = tree / STUDIES / study.name
            with tempfile.TemporaryDirectory(prefix="same-") as storage:
                found.append(
                    numbers(tree, study_folder if study_folder.exists() else study, Path(storage))
                )
        told = list(differences(*found))
        values = sum(map(len, found[0].values()))
        print(
            f"{study.stem}: {len(found[0])} trials, {values} values, {len(told)} differ", flush=True
        )
        print("".join(f"  {line}\n" for line in told[:5]), end="")
        equal &= bool(found[0]) and not told
    return equal


def main() -> None:
    """The command: compare this tree with another commit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--study", action="append", default=[], help="only this one; repeatable")
    options = parser.parse_args()

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        ).stdout

    base = options.base or (
        "HEAD" if git("status", "--porcelain", "--untracked-files=no") else "HEAD^"
    )
    folder = Path(tempfile.mkdtemp(prefix="same-base-"))
    try:
        git("worktree", "add", "--detach", "--quiet", "--force", str(folder), base)
        equal = compared(folder, options.study)
    finally:
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=False
        )
        shutil.rmtree(folder, ignore_errors=True)
    print("equal" if equal else f"not equal to {base}")
    sys.exit(not equal)


if __name__ == "__main__":
    main()
