"""The datasets that can be staged, one file per published format, and the table that names them."""

from contrasweep.data.content import Importer
from contrasweep.data.importers import cifar, clothing_reviews, digits, mcr_reviews, mnist

DATASETS: dict[str, Importer] = {
    "digits": digits.DIGITS,
    "digits-lt": digits.DIGITS_LT,
    "mnist": mnist.MNIST,
    "fashion-mnist": mnist.FASHION_MNIST,
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "cifar10-lt": cifar.CIFAR10_LT,
    "cifar100-lt": cifar.CIFAR100_LT,
    "clothing-reviews": clothing_reviews.CLOTHING_REVIEWS,
    "mcr-reviews": mcr_reviews.MCR_REVIEWS,
}
