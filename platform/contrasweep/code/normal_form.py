"""The normal form of a module's source: its digest without comments, docstrings and formatting, and what it imports.

The digest is taken from the syntax tree by a walk of our own. The texts of `ast.dump` and `ast.unparse` change from one
Python to the next. Empty fields, positions and kinds of quotes are left out, so that Python 3.11 to 3.14 give one
digest for one source. A handful of f-strings that a newer grammar parses differently would give another.

Code that changes no trial is left out too:

- The body of `if TYPE_CHECKING:`, which never runs.
- The body of `if __name__ == "__main__":`, which does not run when the module is imported. In the script that runs, the
  body counts if it sets a name that the rest of the script reads.
- A study that the module declares (`STUDY = AblationGrid(...)`) and does not read. All that a study says stands in the
  settings of its trials, so that one more arm is no other code.
"""

import ast
import functools
import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

DIGEST_DIGITS = 16
_STUDIES = {"AblationGrid", "Sweep"}
_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores", "lineno", "col_offset", "end_lineno", "end_col_offset"}
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CACHE_SIZE = 4096


@dataclass(frozen=True)
class Import:
    """One name that a module imports: `from <level dots><module> import <name>`.

    `name` is empty for `import <module>` and `*` for all names.
    """

    module: str
    name: str = ""
    level: int = 0


@dataclass(frozen=True)
class NormalForm:
    """The digest of a module's source, and its imports in their order.

    `discovers`: the module lists the modules of a package (`pkgutil.iter_modules`, `walk_packages`), to import each by
    name. `exports`: its `__all__`, where that is a list of texts.
    """

    digest: str
    imports: tuple[Import, ...] = ()
    discovers: bool = False
    exports: tuple[str, ...] = ()


def short_digest(data: bytes) -> str:
    """The digits of the SHA-256 of `data` that name a module's or a study's code."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]


@functools.lru_cache(_CACHE_SIZE)
def normal_form(source: bytes, *, is_main: bool = False, is_command: bool = False) -> NormalForm:
    """Return the normal form of `source`. Source that is not Python of this version counts by its bytes.

    `is_main` is set for the script that runs, which holds a trainable. `is_command` is set for a script that a trial
    runs, of which everything counts.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in the user's strings
            tree = ast.parse(source)
        walk = _Walk(tree, is_main, is_command)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ValueError: null bytes
        return NormalForm(short_digest(source))
    text = "\n".join(walk.words).encode("utf-8", "surrogatepass")
    return NormalForm(short_digest(text), tuple(walk.imports), walk.discovers, _exports(tree))


class _Walk:
    """One pass over a syntax tree: the words of its normal form, and its imports."""

    def __init__(self, tree: ast.Module, is_main: bool, is_command: bool) -> None:
        self.words: list[str] = []
        self.write = self.words.append
        self.imports: list[Import] = []
        self.discovers = False
        self.main_counts = is_command or (is_main and _main_sets_names(tree))
        self.declared = _study_declarations(tree)
        self.node(tree)

    def node(self, node: Any) -> None:
        """Write a node. The commonest kinds come first and by hand: half of the nodes are names."""
        write, kind = self.write, node.__class__
        if kind is ast.Name:
            write(node.id)
            return
        if kind is ast.Constant:
            write(_constant(node.value))
            return
        if kind is ast.Attribute:
            self.node(node.value)
            write("." + node.attr)
            return
        opening, fields, special = _SHAPES.get(kind) or _shape(kind)
        if special:
            if kind is ast.If and self.never_runs(node):
                for other in node.orelse:
                    self.node(other)
                return
            self.note(node)
        write(opening)
        values = node.__dict__
        for name in fields:
            value = values.get(name)
            if value is None or value == []:
                continue
            field = value.__class__
            if field is ast.Name:
                write(name)
                write(value.id)
            elif field is list:
                write(name)
                self.several(_counting(kind, name, value) if kind in _COUNTED else value)
            elif isinstance(value, ast.AST):
                write(name)
                self.node(value)
            else:
                write(f"{name}={value}")
        write(")")

    def several(self, nodes: list[Any]) -> None:
        """Write a list of nodes; of texts in `global a, b`; with None for the key in `{**mapping}`."""
        for node in nodes:
            if node.__class__ is ast.Name:
                self.write(node.id)
            elif not isinstance(node, ast.AST):
                self.write(f"={node}")
            elif not (self.declared and node in self.declared):
                self.node(node)
        self.write("]")

    def never_runs(self, node: ast.AST) -> bool:
        test = node.test  # type: ignore[attr-defined]
        if isinstance(test, ast.Name | ast.Attribute):
            return (test.id if isinstance(test, ast.Name) else test.attr) == "TYPE_CHECKING"
        return not self.main_counts and _asks_for_main(test)

    def note(self, node: ast.AST) -> None:
        """Keep what a statement or call imports."""
        if isinstance(node, ast.Import):
            self.imports += [Import(alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            self.imports += [Import(node.module or "", alias.name, node.level) for alias in node.names]
        elif isinstance(node, ast.Call):
            function = node.func
            called = getattr(function, "id", "") or getattr(function, "attr", "")
            if called in ("iter_modules", "walk_packages"):
                self.discovers = True
            first = node.args[0] if node.args else None
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                self.imports += _by_name(first.value)


def _exports(tree: ast.Module) -> tuple[str, ...]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            entries = getattr(node.value, "elts", [])
            return tuple(e.value for e in entries if isinstance(e, ast.Constant) and isinstance(e.value, str))
    return ()


def _by_name(name: object) -> list[Import]:
    """Return the module that a call imports: `import_module("a.b")` or `import_module(".b", __package__)`."""
    if not isinstance(name, str) or not name:
        return []
    bare = name.lstrip(".")
    if bare == name:
        return [Import(name)]
    return [Import("", bare, len(name) - len(bare))] if bare else []


def _counting(kind: type[ast.AST], name: str, nodes: list[Any]) -> list[Any]:
    """`nodes` without a docstring; of an f-string without empty texts, which some versions of Python write."""
    if name == "body" and kind in _DOCUMENTED and _is_docstring(nodes[0]):
        return nodes[1:]
    if kind is ast.JoinedStr:
        return [part for part in nodes if getattr(part, "value", None) != ""]
    return nodes


_SPECIAL = frozenset({ast.If, ast.Import, ast.ImportFrom, ast.Call})


_COUNTED = frozenset({*_DOCUMENTED, ast.JoinedStr})
_SHAPES: dict[type[ast.AST], tuple[str, tuple[str, ...], bool]] = {}


def _shape(kind: type[ast.AST]) -> tuple[str, tuple[str, ...], bool]:
    """Return the first words of a kind of node, its fields, and whether it may import something or never run."""
    fields = tuple(name for name in kind._fields if name not in _SKIPPED)
    shape = _SHAPES[kind] = f"{kind.__name__}(", fields, kind in _SPECIAL
    return shape


def _constant(value: object) -> str:
    if isinstance(value, str):
        return f"s{len(value)}:{value}"
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)  # repr has a limit of digits
    return repr(value)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _main_sets_names(tree: ast.Module) -> bool:
    """Whether a script's `if __name__ == "__main__":` sets what the rest of it may read."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and _asks_for_main(node.test)]
    inside = {id(part): part for block in blocks for part in ast.walk(block)}
    names = set()
    for part in inside.values():
        if isinstance(getattr(part, "ctx", None), ast.Store):
            if not isinstance(part, ast.Name):
                return True  # an attribute or an item of anything
            names.add(part.id)
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in inside}
    return bool(names & read)


def _asks_for_main(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    if not isinstance(test, ast.Compare):
        return False
    left, right = test.left, test.comparators[0]
    return (
        isinstance(left, ast.Name)
        and left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(right, ast.Constant)
        and right.value == "__main__"
    )


def _study_declarations(tree: ast.Module) -> set[ast.AST]:
    """Assignments of studies at the top level whose names nothing else in the module reads."""
    makers = _study_makers(tree)
    if not makers:
        return set()
    declarations: dict[str, ast.AST] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or not isinstance(value, ast.Call):
            continue
        if ast.unparse(value.func) in makers:
            declarations[targets[0].id] = node
    inside = {id(part) for node in declarations.values() for part in ast.walk(node)}
    for part in ast.walk(tree) if declarations else ():
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and id(part) not in inside:
            declarations.pop(part.id, None)
    return set(declarations.values())


def _study_makers(tree: ast.Module) -> set[str]:
    """Return the names that the module has for the classes of studies: `cs.AblationGrid`, `Sweep`."""
    makers = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names = {alias.asname or alias.name for alias in node.names if alias.name == "contrasweep"}
            makers |= {f"{name}.{study}" for name in names for study in _STUDIES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "contrasweep":
            makers |= {alias.asname or alias.name for alias in node.names if alias.name in _STUDIES}
    return makers
