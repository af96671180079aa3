"""The headline claims of the papers, each with the study that asks about it on two cores: the rows of docs/claims.md.

Every study declared its smallest difference before it was run. Each decides on other data than its settings were
chosen on, but for floods, of which five of ten served both; both stand beside it.
"""

from typing import Any

from pydantic import Field

from contrasweep.config import Config
from contrasweep.schema import checked


@checked
class Claim:
    """A paper's claim on two arms, and the study that tests it here."""

    says: str
    """The claim, in a sentence: `arm` is better than `against`, or does as well (`same`)."""
    source: str
    """Paper and place, with the difference that it reports."""
    study: str
    """The study, as `module:NAME`; its `smallest_difference` was declared before it was run."""
    arm: str
    against: str
    floor: str | None = None
    """The arm that learns nothing of the kind: raw pixels, or colours; or one of another study of the same data, as
    `module:NAME/arm`."""
    cross_entropy: str | None = None
    """The arm that cross-entropy alone trains; as `floor`."""
    full: str = ""
    """The study at the paper's scale that has the two arms, as `module:NAME`; empty where there is none."""
    full_arms: list[str] = Field(default_factory=list)
    """What that study calls the two arms; empty where it calls them as here. One name twice: an axis tells them
    apart."""
    tried: str = ""
    """On what, and with how many tries, the settings were chosen."""
    on: str = ""
    """The data and the length of training: `8x8 digits, 12 epochs`."""
    under: str = ""
    """The settings that the answer may hang on: `at temperature .2`."""
    same: bool = False
    """Whether the claim is that the two arms do as well, and not that `arm` is better."""
    at: Config | None = None
    """The cell of the study, by axis, that the claim is about; all of them where it is None."""
    fresh: int = 0
    """On how many seeds that the study never used it is asked again, as the advice of its report asks; 0: it is not."""
    declared: int = 1
    """How often the question was declared, each time on other seeds or settings, this time counted."""
    earlier: str = ""
    """The estimate of an earlier declaration, by its name in the file of estimates."""
    before: str = ""
    """How that declaration asked, otherwise than this one, and what came of it where there is no estimate."""
    construction: str = ""
    """Why the data or the loss make it so, whatever a paper's data would say; empty where they do not."""
    stage: str = ""
    """What `contrasweep data stage` needs for the data of the study; empty where they come with the packages."""


SURVEY_TRIED = "84 tried on folds 0 and 1 of the training part, seed 0; decided on the test part, seeds from 100 on"
FLOODS_TRIED = (
    "3 tried for LOCAL (with colour statistics, with colours normalised by flood, and neither), on five of the ten "
    "floods, one held out at a time, seed 0; decided on all ten"
)
FLOODS_BEFORE = (
    "with seeds as replicates, on five floods that stayed the same and decided two studies one "
    "after another"
)
LOCAL_TRIED = (
    "some 25 tried on folds 0 and 1 of the training part, seed 0, one on folds 2 and 3, and 9 more for few epochs; "
    "decided on the test part, seeds from 100 on"
)
CLOTHING_TRIED = (
    "two learning rates, up to 10 epochs, on the validation products with seed 0; decided on the 166 test products, "
    "which count as replicates beside the seeds, from 100 on"
)
FORMS_TRIED = "none on these data: the sizes of the small studies; decided on the 166 test products, seeds from 100 on"
TABLE_6_BEFORE = "at 15 epochs, over batches of 4, 8 and 16 on 8 seeds: undecided"
PLANTED_TRIED = (
    "none on these data: the sizes of the small studies, made for the time that they take; decided on the 200 test "
    "products, seeds from 100 on; of MAP the products count as replicates beside the seeds"
)
TEXT_ALONE = "half of the helpfulness is planted in images, which the other model does not read"
SURVEY = "Feeney and Hughes 2024"
DIGITS = "contrasweep.search_spaces.orthonormal:OVER_SMALL_BATCHES"
RAW_PIXELS = f"{DIGITS}/raw-pixels"
"""On long-tailed digits: nearest neighbours of the pixels."""
CROSS_ENTROPY = f"{DIGITS}/cross-entropy"
"""On long-tailed digits: a ResNet that cross-entropy alone trains for 30 epochs."""
LOCAL = "LOCAL"
OTHER_BASELINES = {
    "dr_net": "adapted D&R-Net",
    "sse_cross": "SSE-Cross",
    "eg_cnn": "EG-CNN, which reads text alone",
    "conv_knrm": "Conv-KNRM, which reads text alone",
    "bimpm": "BiMPM, which reads text alone",
}
HELPFULNESS = "contrasweep.trainables.review_helpfulness.studies"
FULL_SWEEP = "contrasweep.search_spaces.similarity_losses:SWEEP"


def _survey(
    says: str, place: str, study: str, arm: str, against: str, epochs: int = 12, **more: Any
) -> Claim:
    """Return a claim of the survey, asked by a study of survey.py, all of which have the same floor."""
    settings = {"tried": SURVEY_TRIED, "on": f"8x8 digits, {epochs} epochs"} | more
    return Claim(
        says,
        f"{SURVEY}, {place}",
        f"contrasweep.search_spaces.survey:{study}",
        arm,
        against,
        "raw-pixels",
        CROSS_ENTROPY,
        **settings,
    )


def _local(
    says: str,
    place: str,
    study: str,
    arm: str = "ocl",
    against: str = "scl",
    *,
    epochs: int,
    full: str = "",
    **more: Any,
) -> Claim:
    """Return a claim of LOCAL, asked by a study of orthonormal.py; `full` is a study of local.py."""
    settings = {"tried": LOCAL_TRIED, "on": f"8x8 digits, {epochs} epochs"} | more
    full = f"contrasweep.search_spaces.local:{full}" if full else ""
    where = f"contrasweep.search_spaces.orthonormal:{study}"
    return Claim(says, f"{LOCAL}, {place}", where, arm, against, full=full, **settings)


def _floods(
    says: str, place: str, study: str, arm: str, against: str, *, full: str = "", **more: Any
) -> Claim:
    """Return a claim of LOCAL, asked of floods held out whole; `full` is a study of local.py."""
    return Claim(
        says,
        f"{LOCAL}, {place}",
        f"contrasweep.search_spaces.floods:{study}",
        arm,
        against,
        full=f"contrasweep.search_spaces.local:{full}" if full else "",
        tried=FLOODS_TRIED,
        on="ten floods, each held out",
        under="with colour statistics beside the images",
        declared=2,
        before=FLOODS_BEFORE,
        stage="ombria --source FOLDER --set events=all",
        **more,
    )


def _helpfulness(
    says: str, place: str, study: str, arm: str, against: str, full: str = "MAIN_TABLE", **more: Any
) -> Claim:
    """Return a claim of the paper on review helpfulness, asked by a study beside its models."""
    real = study in ("CLOTHING", "FORMS")
    return Claim(
        says,
        f"Nguyen et al. 2022, {place}",
        f"{HELPFULNESS}.claims:{study}",
        arm,
        against,
        None if study == "DISTANCES" else "longest-first",
        full=f"{HELPFULNESS}.tables:{full}" if full else "",
        tried={"CLOTHING": CLOTHING_TRIED, "FORMS": FORMS_TRIED}.get(study, PLANTED_TRIED),
        on="clothing reviews without images" if real else "synthetic reviews",
        under="where no model is surely above ranking by length"
        if real
        else "with half of the helpfulness planted in the images",
        stage=f"{HELPFULNESS.removesuffix('.studies')}.datasets:CLOTHING_REVIEWS --source FILE.csv"
        if real
        else "",
        **more,
    )


CLAIMS = [
    _survey(
        "Negative arc length does as well as cosine",
        "case study: no significant difference, cosine +.0022 and +.0042 of 1NN (CIFAR-10, -100)",
        "SIMILARITY",
        "arc-length",
        "cosine",
        full="contrasweep.search_spaces.similarity_losses:CASE_STUDY",
        full_arms=["neg_arc_length", "cosine"],
        under="at temperatures of .025 and .2",
        same=True,
        fresh=64,
    ),
    _survey(
        "Negative arc length is better than cosine, with InfoNCE",
        "similarities: Koishekenov et al. 2023 report it of self-supervised losses, the survey's motive; no figure",
        "SIMILARITY_INFONCE",
        "arc-length",
        "cosine",
        under="at temperatures of .025 and .1",
        fresh=16,
    ),
    *(
        _survey(
            f"SINCERE does as well as SupCon at temperature {temperature:g}",
            "case study, and SINCERE: accuracy of supervised cross-entropy losses does not differ significantly",
            "SUPERVISED",
            "sincere",
            "supcon",
            full=FULL_SWEEP,
            same=True,
            at={"loss.temperature": temperature},
            fresh=86,
            declared=2,
            earlier="before/survey-sincere/sincere/supcon" if temperature == 0.2 else "",
            before="at temperature .2 alone",
        )
        for temperature in (0.1, 0.2, 0.4)
    ),
    _survey(
        "Labels help: SupCon is better than InfoNCE",
        "cross-entropy losses: positives of the whole class; not said to be better",
        "LABELS",
        "supcon",
        "infonce",
        full=FULL_SWEEP,
        under="at temperatures of .2 and .1",
        fresh=16,
    ),
    _survey(
        "A margin in the cross-entropy helps",
        "cross-entropy losses: it can be added (Barbano et al. 2023); not said to be better",
        "EPSILON",
        "epsilon",
        "none",
        under="with epsilon .25 at temperature .1",
        fresh=56,
    ),
    _survey(
        "Chosen triplets are better than all: semi-hard",
        "margin losses: a triplet teaches only while its loss is positive, so those are to be found",
        "MINING",
        "semi-hard",
        "all",
        40,
        under="at margins of .3 and .1",
        fresh=77,
    ),
    _survey(
        "Chosen triplets are better than all: hardest",
        "margin losses: a triplet teaches only while its loss is positive, so those are to be found",
        "MINING",
        "hard",
        "all",
        40,
        under="at margin .1",
        fresh=77,
    ),
    _survey(
        "Lifted structured loss is better than triplets",
        "margin losses: it handles easy triplets by the hardest negative of a batch",
        "LIFTED",
        "lifted",
        "triplet",
        40,
        full=FULL_SWEEP,
        full_arms=["lifted_structured", "triplet"],
        under="at margins of 1 and .1",
        fresh=8,
    ),
    _survey(
        "Batch hard is better than triplets",
        "margin losses: it goes further and takes the hardest positive too",
        "LIFTED",
        "batch-hard",
        "triplet",
        40,
        full=FULL_SWEEP,
        full_arms=["batch_hard", "triplet"],
        under="at margins of .3 and .1",
        fresh=8,
    ),
    _survey(
        "A set of negatives needs no mining: SupCon is better than semi-hard triplets",
        "cross-entropy losses: a set mines hard negatives by itself, which avoids to choose triplets",
        "SETS",
        "supcon",
        "semi-hard",
        40,
        under="at temperature .2 and margin .3",
        fresh=26,
        declared=2,
        earlier="before/survey-sets/supcon/semi-hard",
        before="at 12 epochs, which leave semi-hard triplets below raw pixels",
    ),
    _local(
        "OCL is better than SCL at the smallest batches",
        "Table 6: .036 of F1 on average at the smallest batch of each dataset",
        "SMALL_BATCHES",
        epochs=30,
        full="TABLE_6",
        floor="raw-pixels",
        cross_entropy=CROSS_ENTROPY,
        under="at a batch of 4",
        declared=2,
        before=TABLE_6_BEFORE,
        fresh=19,
    ),
    _local(
        "OCL is better than SCL over small batches",
        "Table 6: .016 of F1 on average of CIFAR-10-LT's batches, .014 of all three datasets'",
        "OVER_SMALL_BATCHES",
        epochs=30,
        full="TABLE_6",
        floor="raw-pixels",
        cross_entropy="cross-entropy",
        under="over batches of 4, 8 and 16",
        declared=2,
        before=TABLE_6_BEFORE,
        fresh=8,
    ),
    _local(
        "OCL is better than SCL after few epochs",
        "Table 7: .018 of F1 on average",
        "FEW_EPOCHS",
        epochs=10,
        full="TABLE_7",
        floor="raw-pixels",
        cross_entropy=CROSS_ENTROPY,
        under="over batches of 8 and 16",
        declared=2,
        before="with a batch of 4 too, on 10 seeds: undecided",
        fresh=20,
    ),
    _local(
        "OCL is better than SCL on long tails",
        "section 3.3: its bound is reached whatever the balance of classes; no figure",
        "LONG_TAILS",
        epochs=30,
        floor="raw-pixels",
        cross_entropy="cross-entropy",
        under="over imbalance of 10, 50 and 100",
        fresh=38,
    ),
    _local(
        "Class centres of OCL are nearer to orthogonal than those of SCL",
        "section 3.2; mean absolute cosine of two centres, smaller is better, 0 where all are orthogonal; no figure",
        "CENTRES",
        epochs=40,
        construction="orthogonal centres are the optimum of the loss of OCL",
        full="TABLE_6",
        cross_entropy="cross-entropy",
        under="at a batch of 32",
        fresh=8,
    ),
    _local(
        "A falling alpha is better than a constant one: inversely to the epoch",
        "after equation 6, by which it falls inversely; no figure",
        "ALPHA",
        "inverse",
        "constant",
        epochs=15,
        floor=RAW_PIXELS,
        cross_entropy=CROSS_ENTROPY,
        under="from 1, against .5 throughout",
        declared=2,
        before="on 32 other seeds: undecided",
        fresh=64,
    ),
    _local(
        "Weighting the cross-entropy by class helps on long tails",
        "before equation 6; no figure",
        "CLASS_WEIGHTS",
        "balanced",
        "none",
        epochs=15,
        floor="contrasweep.search_spaces.orthonormal:LONG_TAILS/raw-pixels",
        cross_entropy="cross-entropy",
        under="over imbalance of 10 and 50",
        fresh=8,
    ),
    _floods(
        "Pairs matter: LOCAL is better than itself fed one side twice",
        "its premise, no figure; here 4.9 points of mean recall, images alone, on OMBRIA's folds, which share floods",
        "EVENTS",
        "local",
        "local-post",
        floor="colour-post",
        earlier="before/local-floods/local/local-post",
    ),
    _floods(
        "LOCAL is better than colour statistics",
        "which does not compare them; here .9 points of macro-F1 on OMBRIA's own folds, undecided",
        "EVENTS",
        "local",
        "colour",
        earlier="before/local-floods/local/colour",
    ),
    *(
        _floods(
            says,
            place,
            "SYSTEMS",
            "local",
            against,
            floor="colour",
            cross_entropy="cross-entropy",
            full=full,
            full_arms=["local", "local" if against == "last-stages" else against],
            earlier=f"before/local-floods-systems/local/{against}",
        )
        for says, place, against, full in (
            (
                "LOCAL is better than L-SCL",
                "Table 3: 1.9 and .8 points of F1 (HRA, xBD)",
                "l-scl",
                "TABLE_3",
            ),
            (
                "LOCAL is better than SCL on pairs",
                "Table 3: 7.7 and .6 points of F1 (HRA, xBD)",
                "scl",
                "TABLE_3",
            ),
            (
                "Differences of all stages are better than of the last two",
                "Table 5: 1.6 and .4 points of accuracy (HRA, xBD, where two other choices are ahead of all stages)",
                "last-stages",
                "TABLE_5",
            ),
        )
    ),
    _helpfulness(
        "Adaptive contrast ranks reviews better than plain contrast",
        "Table 6: plain contrast costs .0084 of NDCG@5 on Amazon's reviews",
        "PARTS",
        "full",
        "plain-contrast",
        full="ABLATION",
        fresh=59,
    ),
    _helpfulness(
        "Contrast ranks reviews better than none",
        "Table 6: .0106 of MAP on Amazon's reviews",
        "PARTS",
        "full",
        "no-contrast",
        full="ABLATION",
        fresh=59,
    ),
    _helpfulness(
        "Interaction of modalities ranks reviews better than none",
        "Table 6: .0139 of MAP on Amazon's reviews",
        "PARTS",
        "full",
        "no-interaction",
        full="ABLATION",
        fresh=59,
    ),
    _helpfulness(
        "The contrastive term of equation 33 ranks reviews better than that of the authors' code",
        "equation 33; the code has a circle loss in its place, and no figure compares the two",
        "FORMS",
        "paper",
        "code",
        full="",
    ),
    _helpfulness(
        "The proposed model ranks reviews better than MCR",
        "Table 3: .014 of MAP on Lazada's reviews, Home",
        "BASELINES",
        "proposed",
        "mcr",
        fresh=36,
    ),
    _helpfulness(
        "The proposed model ranks reviews better than PRH-Net, which reads text alone",
        "Table 3: .036 of MAP on Lazada's reviews, Home",
        "BASELINES",
        "proposed",
        "prh_net",
        construction=TEXT_ALONE,
        fresh=36,
    ),
    *(
        _helpfulness(
            f"The proposed model ranks reviews better than {name}",
            "Tables 3 and 4: it is ahead of every baseline",
            "BASELINES",
            "proposed",
            model,
            construction=TEXT_ALONE if "text alone" in name else "",
            fresh=36,
        )
        for model, name in OTHER_BASELINES.items()
    ),
    _helpfulness(
        "The proposed model ranks reviews better than PRH-Net",
        "Table 3: .036 of MAP on Lazada's reviews, Home, with images",
        "CLOTHING",
        "proposed",
        "prh_net",
        full="",
        fresh=8,
    ),
    _helpfulness(
        "The proposed model ranks reviews better than Conv-KNRM",
        "Tables 3 and 4: it is ahead of every baseline",
        "CLOTHING",
        "proposed",
        "conv_knrm",
        full="",
        fresh=8,
    ),
    _helpfulness(
        "Contrast brings text and images of helpful reviews together",
        "Tables 7 and 8; cosine distance, smaller is better",
        "DISTANCES",
        "proposed",
        "no-contrast",
        full="DISTANCES",
        construction="to bring them together is the loss of the contrast",
        fresh=8,
    ),
]
