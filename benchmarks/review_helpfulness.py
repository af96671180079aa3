"""The eight review-helpfulness models: what a step costs at the paper's sizes, and the tables of finished studies.

    python benchmarks/review_helpfulness.py step                        time and peak memory of a step, 32 reviews
    python benchmarks/review_helpfulness.py table STUDY --storage URI   means over seeds, paired tests over products

Both write Markdown to benchmarks/results/. The tests over products take a model's average precision of each test
product, averaged over seeds, against that of a random order and of the proposed model: paired t and paired bootstrap.
"""

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
STEPS, TEXT, REGIONS, ROI_DIM, GROUPS, WIDTH, WORDS = 3, 128, 32, 2048, 4, 8, 20_000


def hardware() -> str:
    """Date, processor, cores and versions, in one line."""
    import torch

    models = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    load = os.getloadavg()[0]
    return (
        f"{datetime.date.today().isoformat()}, CPU {models[0] if models else platform.machine()}, {os.cpu_count()} "
        f"cores (load {load:.0f}: shared with other work), torch {torch.__version__}, one torch thread"
    )


def one_model(model: str) -> None:
    """Print seconds a step (CPU time, median of three after one to warm up) and the growth of peak memory in MiB."""
    import torch

    from contrasweep.trainables.review_helpfulness.batch import Corpus, Inputs
    from contrasweep.trainables.review_helpfulness.corpora import Prepared
    from contrasweep.trainables.review_helpfulness.settings import Settings
    from contrasweep.trainables.review_helpfulness.trainer import Trainer

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = GROUPS * WIDTH
    roi = [rng.normal(size=(REGIONS, ROI_DIM)).astype(np.float16) for _ in range(2)]
    tokens = [rng.integers(2, WORDS, TEXT) for _ in range(rows)]
    corpus = Corpus(
        tokens[:GROUPS],
        tokens[:GROUPS],
        [roi[0]] * GROUPS,
        np.zeros(GROUPS, dtype=np.int64),
        tokens,
        [roi[1]] * rows,
        np.repeat(np.arange(GROUPS), WIDTH),
        np.tile([4, *[0] * (WIDTH - 1)], GROUPS),
        ROI_DIM,
    )
    vectors = torch.rand(WORDS, 300) - 0.5
    inputs = Inputs(vectors, vectors.clone(), torch.randint(2, 60, (WORDS, 16)), 60, ROI_DIM)
    settings = Settings(model=model, device="cpu", sampler={"interval": 0})
    trainer = Trainer(settings, Prepared({"train": corpus}, inputs, {}), (0, None))
    parameters = sum(p.numel() for p in trainer.model.parameters())
    before = _peak_mib()
    seconds = []
    for epoch in range(1, 1 + STEPS + 1):
        start = time.process_time()
        trainer.train_epoch(epoch)
        seconds.append(time.process_time() - start)
    print(f"{parameters} {np.median(seconds[1:])} {_peak_mib() - before} {_peak_mib()}")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step() -> str:
    """The table of all models, each measured in a process of its own."""
    from contrasweep.trainables.review_helpfulness import MODELS

    lines = [
        "# A training step of each review-helpfulness model at the paper's sizes",
        "",
        hardware(),
        "",
        f"{GROUPS * WIDTH} reviews of {TEXT} words, {REGIONS} regions of {ROI_DIM} on each side, vocabularies of "
        f"{WORDS} words of 300; "
        "forward, backward and Adam. Step memory is the growth of the process's peak over what it held before the "
        "first step "
        "(data, weights and Adam's state included in the process peak).",
        "",
        "| model | parameters (M) | CPU s a step | step memory (MiB) | process peak (MiB) |",
        "|---|---|---|---|---|",
    ]
    for model, entry in MODELS.items():
        done = subprocess.run([sys.executable, __file__, "one", model], capture_output=True, text=True, check=True)
        parameters, seconds, grown, peak = (float(x) for x in done.stdout.split())
        lines.append(f"| {entry.title} | {parameters / 1e6:.1f} | {seconds:.2f} | {grown:.0f} | {peak:.0f} |")
    return "\n".join(lines) + "\n"


def table(study: str, storage: str, note: str = "") -> str:
    """Means over seeds, the platform's own table, and the tests over products."""
    from contrasweep.results.results import Results
    from contrasweep.trainables.review_helpfulness import MODELS
    from contrasweep.trainables.review_helpfulness.metrics import paired_bootstrap, paired_t

    results = Results.load(study, storage)
    frame = results.to_frame()
    done = frame[frame["status"] == "done"]
    per_product = {
        arm: {
            name: np.mean([results.records.items(i)[name] for i in rows["trial_id"]], axis=0)
            for name in ("map", "random_map")
        }
        for arm, rows in done.groupby("arm", sort=False)
    }
    lines = [
        f"# {results.title}",
        "",
        hardware(),
        *(["", note] if note else []),
        "",
        f"Trials: {results.counts}; seeds {sorted(done['seed'].unique().tolist())}. "
        f"Floors on the test part: random order MAP {done['random_map'].mean():.3f}, longest review first "
        f"{done['length_map'].mean():.3f}.",
        "",
        "| model | reads | MAP (sd over seeds) | NDCG@3 | NDCG@5 | s a trial | minus random order [95 % bootstrap "
        "over products] | t, p | minus proposed, p |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, rows in done.groupby("arm", sort=False):
        model = MODELS.get(str(arm))
        mine = per_product[arm]
        floor, t = paired_bootstrap(mine["map"], mine["random_map"]), paired_t(mine["map"], mine["random_map"])
        versus = (
            ""
            if arm == "proposed" or "proposed" not in per_product
            else paired_t(mine["map"], per_product["proposed"]["map"])
        )
        compared = f"{versus.difference:+.3f}, {versus.p:.3g}" if versus else "-"
        lines.append(
            f"| {model.title if model else arm} | {'text and images' if model and model.multimodal else 'text'} | "
            f"{rows['map'].mean():.3f} ({rows['map'].std():.3f}) | "
            f"{rows['ndcg@3'].mean():.3f} | {rows['ndcg@5'].mean():.3f} | {rows['seconds'].mean():.0f} | "
            f"{floor['difference']:+.3f} [{floor['low']:+.3f}, {floor['high']:+.3f}] | {t.t:.2f}, {t.p:.2g} | "
            f"{compared} |"
        )
    lines += [
        "",
        "p values are not corrected for several models. The platform's own table and verdicts over seeds:",
        "",
        results.table().to_markdown(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "table", "one"])
    parser.add_argument("name", nargs="?", help="the study's name (table), or a model (one)")
    parser.add_argument("--storage", default="./contrasweep-runs")
    parser.add_argument(
        "--note", default="", help="a sentence to put under the title, such as how the scale was chosen"
    )
    options = parser.parse_args()
    if options.what == "one":
        one_model(options.name)
        return
    text = step() if options.what == "step" else table(options.name, options.storage, options.note)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"review_helpfulness_{options.what}{'_' + options.name if options.name else ''}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
