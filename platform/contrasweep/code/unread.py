"""Parts of a module that its digest leaves out, because no trial is another for them.

- The body of `if TYPE_CHECKING:`, which never runs.
- The body of `if __name__ == "__main__":`, which does not run when the module is imported. In the script that runs it
  counts if it sets a name that the rest reads.
- A study that the module declares (`STUDY = AblationGrid(...)`), where nothing in the module reads it: all it says
  stands in its trials' settings, so that one more arm is no other code.
"""

import ast

_STUDIES = {"AblationGrid", "Sweep"}


def main_sets_names(tree: ast.Module) -> bool:
    """Whether a script's `if __name__ == "__main__":` sets what the rest of it may read."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and asks_for_main(node.test)]
    inside = {id(part): part for block in blocks for part in ast.walk(block)}
    names = set()
    for part in inside.values():
        if isinstance(getattr(part, "ctx", None), ast.Store):
            if not isinstance(part, ast.Name):
                return True  # an attribute or an item of anything
            names.add(part.id)
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in inside}
    return bool(names & read)


def asks_for_main(test: ast.expr) -> bool:
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


def study_declarations(tree: ast.Module) -> set[ast.AST]:
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
    """How the module writes the names of our studies: `cs.AblationGrid`, `Sweep`."""
    makers = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names = {alias.asname or alias.name for alias in node.names if alias.name == "contrasweep"}
            makers |= {f"{name}.{study}" for name in names for study in _STUDIES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "contrasweep":
            makers |= {alias.asname or alias.name for alias in node.names if alias.name in _STUDIES}
    return makers
