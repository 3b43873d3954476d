"""docs/mutation.md explains only changes that its tool makes; and which changes those are."""

import ast
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def tool() -> Any:
    """Return the tool as a module."""
    loader = SourceFileLoader("mutation_check", str(ROOT / "tools/mutation-check"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, loader.name, module)  # a dataclass looks its own module up
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.syspath_prepend(ROOT / "tools")
        loader.exec_module(module)
        module.mutants = sys.modules.pop("mutants")  # type: ignore[attr-defined]  # for the tests alone
    return module


def test_each_explained_survivor_is_a_change_that_is_tried(tool: Any) -> None:
    """A line that was changed since needs its explanation anew."""
    known = tool.explained()
    assert len(known) > 5
    tried = {one.key for module in {key[0] for key in known} for one in tool.mutants_of(module)}
    assert known - tried == set()


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("a < b", {"a <= b"}),
        ("a and b", {"a or b", "a", "b"}),
        ("not a", {"a"}),
        ("{1: a, 2: b}", {"{1: a}", "{2: b}"}),
        ("[x for x in y if z]", {"for x in y"}),
        ("7", {"8"}),
        ("assert_never(a)", set()),
        ("f(a)", {"nothing"}),
    ],
)
def test_which_changes_are_made(tool: Any, code: str, changes: set[str]) -> None:
    """Each kind once, at the place where it stands."""
    found = {
        "nothing" if new is None else tool.mutants.shown(new)
        for _, node in tool.mutants.walk(ast.parse(code), ())
        if not (isinstance(node, ast.Constant) and code != "7")
        for new in tool.mutants.changes_of(node)
    }
    assert found == changes


def test_a_change_is_made_in_a_copy_and_keeps_its_lines(tool: Any) -> None:
    """The tree itself stays as it was."""
    tree = ast.parse("x = 1\nif a:\n    y = 2\n")
    new = tool.mutants.exchanged(tree, tree.body[1].test, ast.Constant(False))  # type: ignore[attr-defined]  # an If
    assert ast.unparse(new) == "x = 1\nif False:\n    y = 2"
    assert ast.unparse(tree) == "x = 1\nif a:\n    y = 2"
    assert new.body[1].test.lineno == 2
