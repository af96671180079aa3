"""Does a learned temperature help two towers, and is SigLIP as good as CLIP in small batches?

CLIP and SigLIP, each with a learned temperature (and bias) and with the one that it starts from, on long-tailed
CIFAR-10. The captions are the classes' names in a prompt, and no captions that somebody wrote: what is scored is
zero-shot classification by the same prompt. `contrasweep data stage cifar10-lt --source FILE` first.
"""

from contrasweep import AblationGrid, Arm

TRAIN = "contrasweep.trainables.two_tower:train"
BASE = {
    "epochs": 4,
    "batch_size": 128,
    "learning_rate": 3e-3,
    "max_words": 8,
    "checkpoint_every": 0,
}
FIXED = {"learnable_temperature": False}

STUDY = AblationGrid(
    name="image-text",
    description="CLIP and SigLIP with learned and fixed temperature, on long-tailed CIFAR-10 whose captions are the "
    "names of its classes",
    arms={
        "clip": Arm(TRAIN, config=BASE | {"loss": "clip"}),
        "clip-fixed": Arm(TRAIN, config=BASE | {"loss": "clip"} | FIXED),
        "siglip": Arm(TRAIN, config=BASE | {"loss": "siglip"}),
        "siglip-fixed": Arm(TRAIN, config=BASE | {"loss": "siglip"} | FIXED),
    },
    data="cifar10-lt",
    seeds=[0, 1, 2, 3, 4, 5, 6],
    metric="zero_shot",
    reference="clip",
    smallest_difference=0.02,
)
