"""LOCAL (Latent Orthonormal Contrastive Learning for Paired Images) and the systems it is compared with."""

from trainables.paired_images.exporting import load_model
from trainables.paired_images.settings import Settings
from trainables.paired_images.train import train

__all__ = ["Settings", "load_model", "train"]
