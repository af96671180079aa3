"""Commands of ours as text for people to paste into a shell."""

import shlex


def command_line(name: str, *words: object, **options: object) -> str:
    """Return `contrasweep NAME WORDS --OPTION VALUE` as a shell takes it, whatever signs are in words and values.

    An option of the value True stands alone, one of a list stands once for each entry, one of None is left out.
    """
    flags: list[str] = []
    for option, value in options.items():
        for entry in value if isinstance(value, list) else [value]:
            if entry is True:
                flags.append(f"--{option}")
            elif str(entry).startswith("-"):  # alone it would be read as the next option
                flags.append(f"--{option}={entry}")
            elif entry is not None:
                flags += [f"--{option}", str(entry)]
    # Behind -- no word is taken for an option.
    texts = [str(word) for word in words]
    parts = [*texts, *flags]
    if any(text.startswith("-") for text in texts):
        parts = [*flags, "--", *texts]
    return shlex.join(["contrasweep", *name.split(), *parts])


def is_ours(text: str) -> bool:
    """Return whether `text` is exactly one command `contrasweep ...`, quoted as `shlex.join` quotes it.

    If it is, a shell into which it is pasted runs this command and nothing else.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    return words[:1] == ["contrasweep"] and shlex.join(words) == text
