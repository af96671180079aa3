"""Encoders of texts: rows of word indices [n w] to features [n d], and the readers that make the indices.

The built-in `cnn` reads words of the training part. `hf:FOLDER` is a Hugging Face model with its tokenizer, as
`save_pretrained` writes both to a folder; nothing is downloaded. Your own, by dotted path, is a function
`(words, **options) -> module` whose module has `dim`; `words` is the number of word indices.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.components import Component, Table
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import errors_named, import_path, project_folders
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.storage.names import local_path
from contrasweep.trainables.pytorch import nn
from contrasweep.trainables.texts.words import Reader, WordReader

HUGGING_FACE = "hf:"
"""The names of encoders that are Hugging Face models in folders begin with this."""
Width = Annotated[int, pydantic.Field(ge=1, description="Features of a word and of each stage.")]
Dropout = Annotated[
    float, pydantic.Field(ge=0, le=1, description="Share of the features that a stage drops.")
]
Pooling = Literal["mean", "first"]
"""What one vector is made of: the vectors of all tokens, or that of the first."""


def convolution_encoder(words: int, *, width: Width = 96, dropout: Dropout = 0.2) -> "nn.Module":
    """Word embeddings, then three residual convolutions, with the outputs of all four stages."""
    from contrasweep.trainables.texts.networks import ConvolutionEncoder

    return ConvolutionEncoder(words, width, dropout)


def cnn(words: int, *, width: Width = 96, dropout: Dropout = 0.2) -> "nn.Module":
    """Word embeddings, three residual convolutions, and the mean over words."""
    from contrasweep.trainables.texts.networks import ConvolutionEncoder, MeanOfWords

    return MeanOfWords(ConvolutionEncoder(words, width, dropout))


@functools.cache
def find(name: str) -> Callable[..., Any]:
    """Return the encoder that is not in the table: `hf:FOLDER`, or at a dotted path (`SpecError` if none is there)."""
    if not name.startswith(HUGGING_FACE):
        return import_path(name, kind="text encoder")  # type: ignore[no-any-return]

    def hugging_face(
        words: int, *, pooling: Pooling = "mean", sha256: Annotated[str, OMIT_DEFAULT] = ""
    ) -> "nn.Module":
        """Build the model of the folder; it has a vocabulary of its own, so the number of `words` is not used."""
        from contrasweep.trainables.texts.networks import HuggingFaceModel

        return HuggingFaceModel(folder_of(name, sha256), pooling)

    hugging_face.__doc__ = f"The Hugging Face model in {name.removeprefix(HUGGING_FACE)}."
    return hugging_face


ENCODERS: Table[Callable[..., Any]] = Table("text encoder", {"cnn": cnn}, find=find)
"""name -> (number of word indices, parameters) -> encoder."""


def reader_of(encoder: Component, texts: Iterable[str], min_count: int, max_words: int) -> Reader:
    """Return the function from texts to the indices that the encoder takes.

    A Hugging Face model has a tokenizer of its own. Any other encoder gets the vocabulary of `texts`, those of the
    training part: the words that occur at least `min_count` times there. A text is read up to `max_words` words (or
    tokens).
    """
    if not encoder.name.startswith(HUGGING_FACE):
        return WordReader(texts, min_count, max_words)
    from contrasweep.trainables.texts.networks import HuggingFaceReader

    return HuggingFaceReader(folder_of(encoder.name, encoder.parameters["sha256"]), max_words)


def with_digest_of_folder(encoder: Component) -> Component:
    """Return a Hugging Face model's component with its folder's digest, for a trial's identity; others as they are.

    Raises:
        SpecError: There is no such folder, or it holds no model.
        DataError: The component has another digest already.
    """
    if not encoder.name.startswith(HUGGING_FACE):
        return encoder
    digest = digest_of(folder_of(encoder.name, encoder.parameters["sha256"]))
    return ENCODERS.choose({**encoder.to_plain(), "sha256": digest})


def folder_of(name: str, sha256: str = "") -> Path:
    """Return the folder of the encoder `hf:FOLDER`, absolute or within the project's folder.

    Raises:
        SpecError: There is no such folder, or it holds no model.
        DataError: Its content has another digest than `sha256`.
    """
    # The path as it stands, then within the project's folders; the first one that holds a model is taken.
    text = name.removeprefix(HUGGING_FACE)
    places = [local_path(text, "encoder"), *(folder / text for folder in project_folders())]
    with_model = [place for place in places if (place / "config.json").is_file()]
    if not with_model:
        hint = "a folder as save_pretrained of model and tokenizer writes it, with config.json; nothing is downloaded"
        raise SpecError(
            "there is no such folder with a model", place="encoder", value=text, hint=hint
        )
    folder = with_model[0]
    digest = digest_of(folder) if sha256 else ""
    if digest != sha256:
        raise DataError(
            f"the model in {folder} has digest {digest[:12]}, the study's has {sha256[:12]}"
        )
    return folder


def digest_of(folder: Path) -> str:
    """Return the SHA-256, 64 hex digits, over names and contents of the files of a folder, hidden ones left out."""
    state = hashlib.sha256()
    for file in sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")
    ):
        with file.open("rb") as stream:
            state.update(
                f"{file.name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode()
            )
    return state.hexdigest()


def load_pretrained(network: "nn.Module") -> None:
    """Fill the Hugging Face models in `network` with the weights of their folders; `SpecError` where those do not fit.

    Other networks stay as they are.
    """
    from contrasweep.trainables.texts.networks import HuggingFaceModel

    for module in network.modules():
        if isinstance(module, HuggingFaceModel):
            with errors_named("the folder holds no weights of this model", "encoder"):
                module.load()
