"""The headline claims of the papers, each with the study that asks about it on two cores: the rows of docs/claims.md.

Every study declared its smallest difference before it was run, and decides on data apart from those that its settings
were chosen on; both stand beside it.
"""

from contrasweep.schema import checked


@checked
class Claim:
    """What a paper says of two arms, and the study that asks about it here."""

    says: str
    """The claim, in a sentence: `arm` is better than `against`, or as good."""
    source: str
    """Paper and place, with the difference that it reports."""
    study: str
    """The study, as `module:NAME`; its `smallest_difference` was declared before it was run."""
    arm: str
    against: str
    floor: str | None = None
    """The arm that learns nothing of the kind: raw pixels, or colours; or one of another study of the same data, as
    `module:NAME/arm`."""
    ceiling: str | None = None
    """The arm that the question leaves alone and that is known to do well, such as cross-entropy; as `floor`."""
    full: str = ""
    """The study at the paper's scale, as `module:NAME`, or what it would take."""
    tried: str = ""
    """On what, and with how many tries, the settings were chosen."""


SURVEY_TRIED = "84 tried on folds 0 and 1 of the training part, seed 0; decided on the test part, seeds from 100 on"
FLOODS_TRIED = (
    "3 tried (with colour statistics, with colours normalised by flood, and neither), on five floods, one held out at "
    "a time, seed 0; decided on the five others"
)
SYSTEMS_TRIED = f"none but those of LOCAL: {FLOODS_TRIED}, with seeds from 300 on"
LOCAL_TRIED = (
    "25 tried on folds 0 and 1 of the training part, seed 0, and one on folds 2 and 3; decided on the test part"
)
CLOTHING_TRIED = (
    "two learning rates, up to 10 epochs, on the validation products with seed 0; decided on the test products, seeds "
    "from 100 on"
)
PLANTED_TRIED = (
    "none on these data: the sizes of the small studies, made for the time that they take; decided on the test "
    "products, seeds from 100 on"
)
SURVEY = "Feeney and Hughes 2024"
DIGITS = "contrasweep.search_spaces.orthonormal:OVER_SMALL_BATCHES"
RAW_PIXELS, CROSS_ENTROPY = f"{DIGITS}/raw-pixels", f"{DIGITS}/cross-entropy"
"""On long-tailed digits: nearest neighbours, and a ResNet that cross-entropy alone trains for 30 epochs."""
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


def _survey(says: str, place: str, study: str, arm: str, against: str, full: str = FULL_SWEEP) -> Claim:
    """Return a claim of the survey, asked by a study of survey.py, all of which have the same floor."""
    return Claim(
        says,
        f"{SURVEY}, {place}",
        f"contrasweep.search_spaces.survey:{study}",
        arm,
        against,
        floor="raw-pixels",
        ceiling=CROSS_ENTROPY,
        full=full,
        tried=SURVEY_TRIED,
    )


def _local(
    says: str,
    place: str,
    study: str,
    arm: str = "ocl",
    against: str = "scl",
    *,
    floor: str | None = None,
    ceiling: str | None = None,
    full: str = "TABLE_6",
) -> Claim:
    """Return a claim of LOCAL, asked by a study of orthonormal.py or local.py; `full` is a study of local.py."""
    where = f"{LOCAL}, {place}"
    return Claim(
        says, where, study, arm, against, floor, ceiling, f"contrasweep.search_spaces.local:{full}", LOCAL_TRIED
    )


def _systems(says: str, place: str, against: str, full: str) -> Claim:
    """Return a claim of LOCAL's systems, asked by `floods.SYSTEMS`; `full` is a study of local.py."""
    study = "contrasweep.search_spaces.floods:SYSTEMS"
    return Claim(
        f"{says}, on floods never seen",
        f"{LOCAL}, {place}",
        study,
        "local",
        against,
        floor="colour",
        full=f"contrasweep.search_spaces.local:{full}",
        tried=SYSTEMS_TRIED,
    )


def _helpfulness(says: str, place: str, study: str, arm: str, against: str, full: str = "MAIN_TABLE") -> Claim:
    """Return a claim of the paper on review helpfulness, asked by a study beside its models."""
    return Claim(
        says,
        f"Nguyen et al. 2022, {place}",
        f"{HELPFULNESS}.claims:{study}",
        arm,
        against,
        floor=None if study == "DISTANCES" else "longest-first",
        full=f"{HELPFULNESS}.tables:{full}",
        tried=CLOTHING_TRIED if study == "CLOTHING" else PLANTED_TRIED,
    )


CLAIMS = [
    _survey(
        "Negative arc length does as well as cosine",
        "case study: no significant difference, cosine +.0022 and +.0042 of 1NN (CIFAR-10, -100)",
        "SIMILARITY",
        "arc-length",
        "cosine",
        full="contrasweep.search_spaces.similarity_losses:CASE_STUDY",
    ),
    _survey(
        "SINCERE does as well as SupCon",
        "case study, and SINCERE: accuracy of supervised cross-entropy losses does not differ significantly",
        "SUPERVISED",
        "sincere",
        "supcon",
    ),
    _survey(
        "Labels help: SupCon is better than InfoNCE",
        "cross-entropy losses: positives of the whole class",
        "LABELS",
        "supcon",
        "infonce",
    ),
    _survey(
        "A margin in the cross-entropy helps",
        "cross-entropy losses: epsilon-SupInfoNCE (Barbano et al. 2023)",
        "EPSILON",
        "epsilon",
        "none",
    ),
    _survey(
        "Chosen triplets are better than all: semi-hard",
        "margin losses: most triplets are easy and teach nothing",
        "MINING",
        "semi-hard",
        "all",
    ),
    _survey(
        "Chosen triplets are better than all: hardest",
        "margin losses: most triplets are easy and teach nothing",
        "MINING",
        "hard",
        "all",
    ),
    _survey(
        "Lifted structured loss is better than triplets",
        "margin losses: it takes the hardest negative of a batch",
        "LIFTED",
        "lifted",
        "triplet",
    ),
    _survey(
        "Batch hard is better than triplets",
        "margin losses: it takes the hardest positive too",
        "LIFTED",
        "batch-hard",
        "triplet",
    ),
    _survey(
        "A set of negatives needs no mining: SupCon is better than semi-hard triplets",
        "cross-entropy losses: they mine hard negatives by themselves",
        "SETS",
        "supcon",
        "semi-hard",
    ),
    _local(
        "OCL is better than SCL at the smallest batches",
        "Table 6: .036 of F1 on average at the smallest batch of each dataset",
        "contrasweep.search_spaces.orthonormal:SMALL_BATCHES",
        floor="raw-pixels",
        ceiling=CROSS_ENTROPY,
    ),
    _local(
        "OCL is better than SCL over small batches",
        "Table 6: .016 of F1 on average",
        "contrasweep.search_spaces.orthonormal:OVER_SMALL_BATCHES",
        floor="raw-pixels",
        ceiling="cross-entropy",
    ),
    _local(
        "OCL is better than SCL after few epochs",
        "Table 7: .018 of F1 on average",
        "contrasweep.search_spaces.orthonormal:FEW_EPOCHS",
        floor="raw-pixels",
        ceiling=CROSS_ENTROPY,
        full="TABLE_7",
    ),
    _local(
        "OCL is better than SCL on long tails",
        "section 3.2",
        "contrasweep.search_spaces.orthonormal:LONG_TAILS",
        floor="raw-pixels",
    ),
    _local(
        "Class centres of OCL are orthogonal",
        "section 3.1; mean absolute cosine of two centres, smaller is better, 0 where all are orthogonal",
        "contrasweep.search_spaces.orthonormal:CENTRES",
    ),
    _local(
        "Alpha should fall: inversely to the epoch",
        "after equation 6; no figure",
        "contrasweep.search_spaces.orthonormal:ALPHA",
        "inverse",
        "constant",
        floor=RAW_PIXELS,
        ceiling=CROSS_ENTROPY,
        full="TABLE_3",
    ),
    _local(
        "Alpha should fall: parabolically",
        "after equation 6; no figure",
        "contrasweep.search_spaces.orthonormal:ALPHA",
        "parabolic",
        "constant",
        floor=RAW_PIXELS,
        ceiling=CROSS_ENTROPY,
        full="TABLE_3",
    ),
    _local(
        "Weighting the cross-entropy by class helps on long tails",
        "equation 5; no figure",
        "contrasweep.search_spaces.orthonormal:CLASS_WEIGHTS",
        "balanced",
        "none",
        full="TABLE_3",
    ),
    Claim(
        "Pairs matter on floods never seen: LOCAL is better than itself fed one side twice",
        f"{LOCAL}, its premise; 4.9 points of mean recall on OMBRIA's own folds, which share floods",
        "contrasweep.search_spaces.floods:EVENTS",
        "local",
        "local-post",
        floor="colour-post",
        full="contrasweep.search_spaces.local:TABLE_2",
        tried=FLOODS_TRIED,
    ),
    Claim(
        "LOCAL is better than colour statistics on floods never seen",
        f"{LOCAL}, its premise; .9 points of macro-F1 on OMBRIA's own folds, undecided there",
        "contrasweep.search_spaces.floods:EVENTS",
        "local",
        "colour",
        full="contrasweep.search_spaces.local:TABLE_2",
        tried=FLOODS_TRIED,
    ),
    _systems("LOCAL is better than L-SCL", "Table 3: 1.9 and .8 points of F1", "l-scl", "TABLE_3"),
    _systems("LOCAL is better than SCL on pairs", "Table 3: 7.7 and .6 points of F1", "scl", "TABLE_3"),
    _systems(
        "Differences of all stages are better than of the last two",
        "Table 5: 1.6 and .4 points of accuracy",
        "last-stages",
        "TABLE_5",
    ),
    _helpfulness(
        "Adaptive contrast ranks reviews better than plain contrast (synthetic reviews)",
        "Table 6: plain contrast costs .0084 of NDCG@5 on Amazon's reviews",
        "PARTS",
        "full",
        "plain-contrast",
        full="ABLATION",
    ),
    _helpfulness(
        "Contrast ranks reviews better than none (synthetic reviews)",
        "Table 6: .0106 of MAP on Amazon's reviews",
        "PARTS",
        "full",
        "no-contrast",
        full="ABLATION",
    ),
    _helpfulness(
        "Interaction of modalities ranks reviews better than none (synthetic reviews)",
        "Table 6: .0139 of MAP on Amazon's reviews",
        "PARTS",
        "full",
        "no-interaction",
        full="ABLATION",
    ),
    _helpfulness(
        "The proposed model ranks reviews better than MCR (synthetic reviews)",
        "Table 3: .014 of MAP on Lazada's reviews, Home",
        "BASELINES",
        "proposed",
        "mcr",
    ),
    _helpfulness(
        "The proposed model ranks reviews better than PRH-Net, which reads text alone (synthetic reviews)",
        "Table 3: .036 of MAP on Lazada's reviews, Home",
        "BASELINES",
        "proposed",
        "prh_net",
    ),
    *(
        _helpfulness(
            f"The proposed model ranks reviews better than {name} (synthetic reviews)",
            "Tables 3 and 4: it is ahead of every baseline",
            "BASELINES",
            "proposed",
            model,
        )
        for model, name in OTHER_BASELINES.items()
    ),
    _helpfulness(
        "The proposed model ranks reviews better than PRH-Net where there are no images",
        "Table 3: .036 of MAP on Lazada's reviews, Home, with images",
        "CLOTHING",
        "proposed",
        "prh_net",
    ),
    _helpfulness(
        "The proposed model ranks reviews better than Conv-KNRM where there are no images",
        "Tables 3 and 4: it is ahead of every baseline",
        "CLOTHING",
        "proposed",
        "conv_knrm",
    ),
    _helpfulness(
        "Contrast brings text and images of helpful reviews together (synthetic reviews)",
        "Tables 7 and 8; cosine distance, smaller is better",
        "DISTANCES",
        "proposed",
        "no-contrast",
        full="DISTANCES",
    ),
]
