"""What the memory estimates of every modality of the family share."""

from typing import Any, Literal, TypedDict

from contrasweep.data.manifest import Manifest
from contrasweep.trainables.images import rows_to_train
from contrasweep.trainables.optimisation import optimizer_states
from contrasweep.trainables.paired.settings import Recipe
from contrasweep.trainables.pytorch import Tensor

TYPICAL_CLASSES = 10
"""Where the dataset names no classes; the classifier's last layer hardly counts."""


def precision(recipe: Recipe) -> Literal["fp32", "bf16"]:
    """What `contrasweep.cluster.memory` calls the precision of the network."""
    return "bf16" if recipe.autocast else "fp32"


class RecipeFields(TypedDict):
    """The fields of a `Workload` that a recipe says."""

    optimizer_states: float
    precision: Literal["fp32", "bf16"]
    device: str
    cpus: float
    steps: float


def of_recipe(recipe: Recipe, data: Manifest) -> RecipeFields:
    """The fields of a `Workload` that every modality takes from its recipe."""
    return {
        "optimizer_states": optimizer_states(recipe.optimizer),
        "precision": precision(recipe),
        "device": recipe.device,
        "cpus": float(recipe.threads),
        "steps": float(recipe.epochs * (rows_to_train(data) // recipe.batch_size)),
    }


def network_output_sum(out: Any) -> Tensor:
    """What a loss reads of a network's `Outputs`, joined, so that what leads to it is kept; the loss's own [B B]
    matrices are left out."""
    joined: Tensor = out.z.sum() + out.logits.sum() + (0.0 if out.latent is None else out.latent.sum())
    return joined
