"""Folders of files."""

import sys
from contextlib import contextmanager


def make_files(folder, files):
    """Write files, path in `folder` -> text, and the folders that they lie in."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@contextmanager
def importable(folder, **modules):
    """Write modules, name=text, which `folder` can be imported from meanwhile. Yields it."""
    make_files(folder, {f"{name}.py": text for name, text in modules.items()})
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in modules:
        sys.modules.pop(name, None)
