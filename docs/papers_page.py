"""Each table, figure and closing hypothesis of the three papers, and what asks about it here: the page docs/papers.md.

python -m docs.papers_page
"""

import tempfile
from pathlib import Path

from docs.claims_ledger import CLAIMS
from docs.claims_page import Kept, load_study, read

from contrasweep.planning.planner import plan_staged

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/papers.md"
REPORTS = ROOT / "docs/claims"
LOSSES, SURVEY, LOCAL, ORTHONORMAL, FLOODS = (
    f"contrasweep.search_spaces.{name}"
    for name in ("similarity_losses", "survey", "local", "orthonormal", "floods")
)
TABLES, REVIEWS = (
    f"contrasweep.trainables.review_helpfulness.studies.{name}" for name in ("tables", "claims")
)
RAN = {
    f"{LOCAL}:{name}_SMALL": "paired_images"
    for name in ("TABLE_2", "TABLE_3", "TABLE_4", "TABLE_5", "SYSTEMS", "SWEEP", "SICK")
}
RAN |= {f"{LOSSES}:CASE_STUDY_SMALL": "case_study", f"{LOCAL}:MOTIVATION": "motivation"}
"""Studies that a file of benchmarks/results/ has, where there is one."""
PAIRED = "[undecided](../benchmarks/results/paired_images.md)"
SINGLE = "[results](../benchmarks/results/orthonormal.md)"

Item = tuple[str, str, str, str]
"""What a paper has, its study at the paper's scale, the studies that two cores run (with spaces), and what to know."""
PAPERS: dict[str, list[Item]] = {
    "Feeney and Hughes 2024 (survey of similarities and losses)": [
        (
            "Table of the case study: 1NN and 5NN, CIFAR-10 and -100",
            f"{LOSSES}:CASE_STUDY",
            f"{SURVEY}:SIMILARITY {LOSSES}:CASE_STUDY_SMALL",
            "arc length is better on long-tailed CIFAR-10 and worse on MNIST; "
            "[the paper's own test](../benchmarks/results/case_study.md) says so at 8 and at 5 of 8 seeds",
        ),
        (
            "Four histograms of similarities by class",
            f"{LOSSES}:CASE_STUDY",
            "",
            "[drawn](../benchmarks/results/similarities_by_class.md)",
        ),
        ("Motive: arc length in self-supervised losses", "", f"{SURVEY}:SIMILARITY_INFONCE", ""),
        (
            "Conclusion: reasonable similarities and losses are equally accurate",
            f"{LOSSES}:SWEEP",
            f"{SURVEY}:SUPERVISED {LOSSES}:SIMILARITY_BY_LOSS",
            "of 42 pairs 11 are surely behind SupCon with cosine, none ahead",
        ),
        (
            "Closing hypothesis: cosine transfers better",
            "",
            f"{LOSSES}:TRANSFER",
            "from MNIST to digits arc length and three Euclidean similarities transfer as well, within .01; the dot "
            "product is undecided",
        ),
        (
            "What is said of losses: labels, margins, mining, sets",
            "",
            f"{SURVEY}:LABELS {SURVEY}:EPSILON {SURVEY}:MINING {SURVEY}:LIFTED {SURVEY}:SETS",
            "",
        ),
    ],
    "LOCAL (latent orthonormal contrastive learning for paired images)": [
        ("Figure 1: examples of pairs", "", "", "private data"),
        (
            "Figures 2 to 5: centres at batches of two, and under imbalance",
            "",
            f"{LOCAL}:MOTIVATION {ORTHONORMAL}:CENTRES",
            "[drawn](../benchmarks/results/motivation.md): OCL's centres lie further apart on average (p = .031); at "
            "batches of two the centres of both coincide",
        ),
        ("Figures 6, 8, 9, 10", "", "", "drawings of the method"),
        (
            "Table 1: GPU memory",
            f"{LOCAL}:TABLE_1",
            "",
            "`contrasweep plan`, within 20 % of the paper's",
        ),
        ("Table 2: batch and input sizes", f"{LOCAL}:TABLE_2", f"{LOCAL}:TABLE_2_SMALL", PAIRED),
        (
            "Table 3: F1 by class, prevalence",
            f"{LOCAL}:TABLE_3",
            f"{FLOODS}:SYSTEMS {FLOODS}:EVENTS {LOCAL}:TABLE_3_SMALL",
            PAIRED,
        ),
        ("Table 4: backbones", f"{LOCAL}:TABLE_4", f"{LOCAL}:TABLE_4_SMALL", PAIRED),
        (
            "Table 5: stages of l",
            f"{LOCAL}:TABLE_5",
            f"{FLOODS}:SYSTEMS {LOCAL}:TABLE_5_SMALL",
            PAIRED,
        ),
        ("Figure 7: t-SNE", f"{LOCAL}:TABLE_3", f"{LOCAL}:SYSTEMS_SMALL", "artifact of a trial"),
        (
            "Table 6: long-tailed single images",
            f"{LOCAL}:TABLE_6",
            f"{ORTHONORMAL}:SMALL_BATCHES {ORTHONORMAL}:OVER_SMALL_BATCHES {ORTHONORMAL}:LONG_TAILS",
            f"{SINGLE}; balanced test parts: `TABLE_6_BALANCED`",
        ),
        ("Table 7: few epochs", f"{LOCAL}:TABLE_7", f"{ORTHONORMAL}:FEW_EPOCHS", SINGLE),
        (
            "Equation 6: alpha by the number of epochs, class weights",
            "",
            f"{ORTHONORMAL}:ALPHA {ORTHONORMAL}:CLASS_WEIGHTS {LOCAL}:ALPHA_SMALL",
            "on pairs undecided: a third of the trials collapsed",
        ),
        (
            "Claim without a figure: other pairs, as of texts",
            f"{LOCAL}:SICK",
            f"{LOCAL}:SICK_SMALL",
            PAIRED,
        ),
        ("What the paper leaves open", f"{LOCAL}:SWEEP", f"{LOCAL}:SWEEP_SMALL", PAIRED),
    ],
    "Nguyen et al. 2022 (review helpfulness)": [
        (
            "Table 1 and section 4.5: a product's reviews",
            f"{TABLES}:MAIN_TABLE",
            f"{REVIEWS}:CLOTHING",
            "[an example](data.md#one-product-as-a-case-study)",
        ),
        ("Table 2: sizes of the data", "", "", "`contrasweep data show DATASET`"),
        (
            "Tables 3 and 4: eight models, two markets",
            f"{TABLES}:MAIN_TABLE",
            f"{REVIEWS}:BASELINES {REVIEWS}:CLOTHING",
            "",
        ),
        ("Table 5: significance", f"{TABLES}:MAIN_TABLE", "", "in each study's table"),
        ("Table 6: without parts", f"{TABLES}:ABLATION", f"{REVIEWS}:PARTS", ""),
        (
            "Tables 7 and 8: distances between modalities",
            f"{TABLES}:DISTANCES",
            f"{REVIEWS}:DISTANCES",
            "on planted images",
        ),
        ("Equation 33 and the authors' code", "", f"{REVIEWS}:FORMS", ""),
        ("Tuning of the models", f"{TABLES}:SEARCH", "", "needs GPUs and the data"),
        ("Limitation: other languages", f"{TABLES}:MAIN_TABLE", "", "data not at hand"),
    ],
}


def page() -> str:
    """The page as Markdown."""
    with tempfile.TemporaryDirectory() as nothing:
        parts = [
            line for paper, items in PAPERS.items() for line in _section(paper, items, nothing)
        ]
    return "\n".join([*HEAD, *parts]) + "\n"


def _section(paper: str, items: list[Item], storage: str) -> list[str]:
    lines = []
    for what, full, small, note in items:
        studies = small.split()
        asked = [*([_planned(full, storage)] if full else []), *map(_name, studies)]
        came = [*_answers(studies, storage), *[note] * bool(note)]
        lines.append(f"- **{what}** ({', '.join(asked)}): {'; '.join(came)}".replace(" ()", ""))
    return [f"## {paper}", "", *lines, ""]


def _name(study: str) -> str:
    module, _, name = study.partition(":")
    return f"{module.rpartition('.')[2]}:{name}"


def _planned(study: str, storage: str) -> str:
    planned, _ = plan_staged(load_study(study), storage=storage)
    total = planned.total if planned else None
    return f"{_name(study)} [{total or 'by its budget'}]"


def _answers(studies: list[str], storage: str) -> list[str]:
    """What the claims that the studies ask came to; of a study without a claim its report, or that it was not run."""
    kept = Kept.of(REPORTS)
    told = dict[str, list[str]]()
    for number, claim in enumerate(CLAIMS, 1):
        if claim.study in studies:
            held = read(claim, storage, kept).held.partition(":")[0].partition(" on ")[0]
            told.setdefault(held, []).append(str(number))
    answers = [
        f"[claim{'s' * (len(n) > 1)} {', '.join(n)}](claims.md): {held}" for held, n in told.items()
    ]
    for study in {
        study: None for study in studies if study not in {claim.study for claim in CLAIMS}
    }:
        name = load_study(study).name
        if (REPORTS / f"{name}.md").is_file():
            answers.append(f"[{_name(study)}](claims/{name}.md)")
        elif not (ROOT / f"benchmarks/results/{RAN.get(study, 'none')}.md").is_file():
            answers.append(f"{_name(study)}: declared, not run")
    return answers


HEAD = [
    "# Three papers, row by row",
    "",
    "Every table, figure and closing hypothesis of the papers that this project follows. In brackets: the study at the "
    "paper's scale [with its trials], not run because it needs GPUs or data that are not at hand, and what two cores "
    "asked in its place. Then what came of it ([claims](claims.md)).",
    "",
]

if __name__ == "__main__":
    PAGE.write_text(page())
