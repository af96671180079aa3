"""Check a bundle of `contrasweep bundle`: `python verify.py BUNDLE.zip` needs Python 3.11 or newer and no package.

It recomputes from the records what the table says: every count, mean and paired difference, and the p of sign-flip
tests; and the digests of all files, records and codes. It prints what differs and ends with 1, or with 0 where all
agrees. Nothing of a bundle is run or written to a disk.
"""

import hashlib
import io
import itertools
import json
import math
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_FILES = 100_000
MOST_BYTES = 2**31
METADATA = "ro-crate-metadata.json"
# The first line of a JSON file of a storage, with the digest of all that follows it.
HEADER = re.compile(rb'\{"format_version": \d{1,6}, "digest": "([0-9a-f]{64})",\n')
EXACT_UP_TO = 14  # replicates of which all sign patterns are tried
TIE = 1e-12  # numbers are equal that differ by less than this share of their size
GAPS = ("failed_a", "failed_b", "missing_a", "missing_b", "pending")  # counts of a comparison
SCOPE_OF_ITEMS = "on new items like these"  # of a comparison whose replicates are test items
COUNTING = ("done",)  # statuses of trials whose values a table has
LARGEST = 1e150  # a larger metric counts as lost
Entries = dict[str, Any]
"""The fields of a file, or files by their names."""


def main(words: list[str]) -> int:
    """Check the bundle that the arguments `words` name, and print what differs.

    Return the exit status: 0 where all agrees, 1 where something differs or the file is no bundle, 2 for other words.
    """
    if len(words) != 1:
        print("usage: python verify.py BUNDLE.zip", file=sys.stderr)
        return 2
    try:
        data = Path(words[0]).read_bytes()
        differing, checked = verify(data)
    except Exception as error:  # a file that cannot be read to its end is no bundle
        print(ascii(f"this is no bundle: {type(error).__name__}: {error}")[1:-1][:300])
        return 1
    # Texts of a bundle are not trusted: `ascii` leaves nothing that a terminal would obey. Its quotes are cut off.
    for line in differing:
        print(ascii(f"differs: {line}")[1:-1][:300])
    print(", ".join(f"{what}: {count}" for what, count in checked.items()))
    print(f"sha256 {hashlib.sha256(data).hexdigest()}: compare it with the one that was published")
    print("DIFFERS" if differing else "all that was recomputed agrees")
    return 1 if differing else 0


def verify(data: bytes) -> tuple[list[str], Counter[str]]:
    """Return a line for each thing that differs within a bundle, and how many numbers, files and so on were checked.

    The second result is kind -> count: `{"files": 12, "records": 5}`.
    """
    files = read(data)
    differing = list(_differing_files(files))
    # Records and codes must have the content whose digest is in their header.
    entries: dict[str, Entries] = {"records": {}, "code": {}}
    for name, content in files.items():
        folder, _, rest = name.partition("/")
        if folder not in entries or not rest.endswith(".json"):
            continue
        entries[folder][rest.removesuffix(".json")] = json.loads(content)
        header = HEADER.match(content)
        if not header or hashlib.sha256(content[header.end() :]).hexdigest() != header[1].decode():
            differing.append(f"{name}: its digest is not that of its content")
    # A record is of the trial that its name stands for, and its code is there.
    records = entries["records"]
    codes = entries["code"]
    for trial_id, record in records.items():
        if trial_id != record["trial_id"]:
            differing.append(f"records/{trial_id}: it is of trial {record['trial_id']}")
        code = record["code"]["digest"]
        if code and code not in codes:
            differing.append(f"records/{trial_id}: its code {code} is not in the bundle")
    differing += _differing_codes(codes)
    # The table must say what the records say.
    report = json.loads(files["table.json"])
    plan = json.loads(files["plan.json"])
    counted = Counter({"files": len(files), "records": len(records), "codes": len(codes)})
    return differing + table(report, plan, records, counted), counted


def _differing_files(files: dict[str, bytes]) -> Iterator[str]:
    """Yield a line for each file that is not as the metadata describe it, by its size and digest."""
    graph = json.loads(files[METADATA])["@graph"]
    listed = {
        str(entry["@id"]): (entry["contentSize"], entry["sha256"])
        for entry in graph
        if entry["@type"] == "File"
    }
    found = {
        name: (str(len(content)), hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    }
    for name in sorted({*listed, *found} - {METADATA}):
        if listed.get(name) != found.get(name):
            yield f"{name}: the metadata have another size or digest, or no such file"


def _differing_codes(codes: Entries) -> Iterator[str]:
    """Yield a line for each code whose modules do not have the digest that its name stands for."""
    for digest, entry in codes.items():
        lines = "\n".join(f"{name} {text}" for name, text in sorted(entry["modules"].items()))
        if hashlib.sha256(lines.encode()).hexdigest()[:16] != digest:
            yield f"code/{digest}: its modules have another digest"


def read(data: bytes) -> dict[str, bytes]:
    """Return name -> content of the files of a zip file.

    Raises `ValueError` for a zip that is too large or compressed, and for a name that occurs twice, is absolute, or
    leads out of the folder by `..`.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise ValueError("it holds too much")
        # A compressed file could unpack to more than its stated size.
        if any(entry.compress_type for entry in entries):
            raise ValueError("its files are compressed")
        names = [entry.filename for entry in entries]
        for name in names:
            # A name from the root begins with an empty part.
            if "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
                raise ValueError(f"{name!r} is no name in a bundle")
        if len(set(names)) != len(names):
            raise ValueError("a file is in it twice")
        return {name: archive.read(name) for name in names}


class Check:
    """Compares what the table states with what the records say.

    Attributes:
        records: The records by trial id.
        counted: How much was compared, by its kind.
        differing: A line for each number that differs.
    """

    def __init__(self, records: Entries, counted: Counter[str]) -> None:
        self.records = records
        self.counted = counted
        self.differing: list[str] = []

    def __call__(self, place: str, what: str, stated: Any, computed: Any) -> None:
        """Compare a number that the table has (`stated`) with the one `computed` from records; note a difference.

        `what` is the kind of the number, by which comparisons are counted. `place` says in words where the table has
        it.
        """
        self.counted[what] += 1
        if not near(stated, computed):
            self.differing.append(
                f"table.json, {place}: {what} {stated!r}, by the records {computed!r}"
            )

    def value(self, trial_id: str, metric: str) -> float | None:
        """Return a trial's value of the metric; None unless the trial is done and its value is a number that counts."""
        record = self.records.get(trial_id)
        if record is None or record["status"] not in COUNTING:
            return None
        value = measured(record, metric)
        return value if value is not None and abs(value) <= LARGEST else None


def table(
    report: Entries, plan: list[Entries], records: Entries, counted: Counter[str]
) -> list[str]:
    """Return a line for each number of the table that differs from the records; add to `counted` what was compared.

    `report` is the content of `table.json`. `plan`, that of `plan.json`, has the fields of each planned trial.
    """
    check = Check(records, counted)
    for row in report["rows"]:
        record = records.get(row["trial_id"])
        for metric, stated in row["metrics"].items():
            check(row["trial_id"], "values", stated, measured(record, metric) if record else None)
        check(row["trial_id"], "statuses", row["status"], record["status"] if record else None)
    for cell in report["table"]:
        check_cell(cell, plan, check)
    for pair in report["comparisons"]:
        check_comparison(pair, plan, check)
    return check.differing


def check_cell(cell: Entries, plan: list[Entries], check: Check) -> None:
    """Compare what a cell states (an entry of the report's `table`) with the plan and with the records of its trials.

    Mean and extremes are those of the trials that are done.
    """
    place = ", ".join(map(str, cell["factors"].values())) or "all"
    values = [check.value(trial_id, cell["metric"]) for trial_id in cell["trial_ids"]]
    known = [value for value in values if value is not None]
    check(place, "counts", cell["n"], len(known))
    check(place, "counts", cell["planned"], len(values))
    check(place, "means", cell["mean"], mean(known))
    check(place, "extremes", cell["min"], min(known, default=None))
    check(place, "extremes", cell["max"], max(known, default=None))
    planned = {row["trial_id"] for row in plan if is_at(row, cell["factors"])}
    check(place, "planned trials", sorted(cell["trial_ids"]), sorted(planned))


def is_at(row: Entries, factors: Entries) -> bool:
    """Whether `row`, a trial of the plan, is of a cell: it has the arm and the values of axes that `factors` names."""
    return bool({**row["axes"], "arm": row["arm"]}.items() >= factors.items())


def check_comparison(pair: Entries, plan: list[Entries], check: Check) -> None:
    """Compare what the table says of a comparison with the records of both arms: its difference, counts and p.

    `pair` is an entry of the report's `comparisons`, and `plan` has the trials of the study.
    """
    place = f"{pair['a']} against {pair['b']}"
    # Arm -> (fold, seed, the cell that is averaged over) -> trial, as the plan has them.
    trials: dict[str, dict[Any, str]] = {pair["a"]: {}, pair["b"]: {}}
    for row in plan:
        if row["arm"] in trials and is_at(row, pair["context"]):
            axes = sorted(row["axes"].keys() - pair["context"].keys())
            cell = tuple(row["axes"][axis] for axis in axes)
            trials[row["arm"]].setdefault((row["fold"], row["seed"], cell), row["trial_id"])
    trials_of_a = trials[pair["a"]]
    trials_of_b = trials[pair["b"]]
    # The replicates and cells that both arms have in the plan, and the values of both arms there.
    keys = [key for key in trials_of_a if key in trials_of_b]
    values: dict[Any, tuple[float, float]] = {}
    has_items = False
    for key in keys:
        a = check.value(trials_of_a[key], pair["metric"])
        b = check.value(trials_of_b[key], pair["metric"])
        if a is not None and b is not None:
            values[key] = a, b
        for trial in (trials_of_a[key], trials_of_b[key]):
            has_items = has_items or bool(check.records.get(trial, {}).get("items"))
    if pair["scope"] == SCOPE_OF_ITEMS and has_items:
        check.counted["comparisons not recomputed"] += 1  # a bundle has no scores of test items
        return

    rounding = TIE * max(map(abs, itertools.chain(*values.values())), default=0.0)
    differences = replicate_differences(values, rounding)
    gaps = len(values) < len(keys)
    check(place, "differences", pair["difference"], mean(differences))
    check(place, "counts", pair["n"], len(differences))
    check(place, "gaps", any(pair[name] for name in GAPS), gaps)
    # Gaps count as losses, and arms whose differences are all equal may be taken for copies of one run.
    differ = max(differences, default=0.0) - min(differences, default=0.0) > 2 * rounding
    if pair["test"] == "sign-flip test" and len(differences) <= EXACT_UP_TO and differ and not gaps:
        check(place, "p", pair["raw_p"], sign_flip_p(differences))
    else:
        check.counted["p not recomputed"] += 1


def replicate_differences(values: dict[Any, tuple[float, float]], rounding: float) -> list[float]:
    """Return the difference a - b of each replicate, from the values of both arms: (fold, seed, cell) -> (a, b).

    It is the mean over the cells; a replicate that lacks a cell is left out. Seeds of a fold are averaged; on one split
    each seed is a replicate. A difference up to `rounding` counts as 0.
    """
    cells: dict[Any, list[float]] = {}  # (fold, seed) -> the difference in each cell
    for (fold, seed, _), (a, b) in values.items():
        cells.setdefault((fold, seed), []).append(a - b if abs(a - b) > rounding else 0.0)
    most = max(map(len, cells.values()), default=0)
    # Fold, or on one split a name of the seed -> the means over cells.
    folds: dict[Any, list[float]] = {}
    for (fold, seed), of_cells in cells.items():
        if len(of_cells) == most:
            replicate = f"seed {seed}" if fold is None else fold
            folds.setdefault(replicate, []).append(math.fsum(of_cells) / most)
    return [math.fsum(of_seeds) / len(of_seeds) for of_seeds in folds.values()]


def measured(record: Entries, metric: str) -> float | None:
    """Return the value that a record has of a metric; None where it has none, or where the value is not finite.

    The table may call the metric `metric.NAME`, as another of its columns is called NAME.
    """
    metrics: Entries = record["metrics"]
    value: float | None = metrics.get(metric, metrics.get(metric.removeprefix("metric.")))
    return value if value is not None and math.isfinite(value) else None


def sign_flip_p(differences: list[float]) -> float:
    """Return the share of all patterns of signs whose sum is as far from 0 as the observed one, or further."""
    total = abs(math.fsum(differences))
    tie = TIE * math.fsum(map(abs, differences))  # sums that differ by less are equal
    # Each difference with both of its signs, in all combinations.
    patterns = list(itertools.product(*((d, -d) for d in differences)))
    extreme = sum(abs(math.fsum(pattern)) >= total - 2 * tie for pattern in patterns)
    return extreme / len(patterns)


def mean(values: list[float]) -> float | None:
    """Return the mean; None for an empty list."""
    return math.fsum(values) / len(values) if values else None


def near(stated: Any, computed: Any) -> bool:
    """Whether two values are equal; numbers may differ by rounding."""
    if isinstance(stated, int | float) and isinstance(computed, int | float):
        return math.isclose(stated, computed, rel_tol=1e-9, abs_tol=1e-12)
    return bool(stated == computed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
