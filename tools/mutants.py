# noqa: INP001 - a folder of tools is no package
"""What tools/mutation-check may put in the place of a piece of code. It runs nothing."""

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
MOST_SHOWN = 110
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: of which module, in which function ("" for the module itself), and as a person reads it."""

    module: str
    function: str
    change: str
    make: Callable[[], ast.Module]
    lines: frozenset[int]

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what stays the same when lines move."""
        return (self.module, self.function, self.change)


def changes_of(node: ast.AST) -> Iterator[ast.AST | None]:  # noqa: C901, PLR0912 - one table, a case a row
    """Yield every node that may stand in the place of this one; None takes a statement out."""
    match node:
        case ast.Compare(ops=[operator, *rest]) if type(operator) in SWAPPED:
            yield ast.Compare(node.left, [SWAPPED[type(operator)](), *rest], node.comparators)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for at in range(len(values)):
                kept = values[:at] + values[at + 1 :]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(operator, kept)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.If() | ast.IfExp():
            for always in (True, False):
                changed = copy.copy(node)
                changed.test = ast.Constant(always)
                yield changed
        case ast.comprehension(ifs=[_, *_]):
            for at in range(len(node.ifs)):
                yield ast.comprehension(
                    node.target, node.iter, node.ifs[:at] + node.ifs[at + 1 :], node.is_async
                )
        case ast.match_case(guard=ast.expr()):
            yield ast.match_case(node.pattern, None, node.body)
        case ast.Dict(keys=[_, _, *_]):
            for at in range(len(node.keys)):
                yield ast.Dict(node.keys[:at] + node.keys[at + 1 :], node.values[:at] + node.values[at + 1 :])
        case ast.Set(elts=[_, _, *_]):
            for at in range(len(node.elts)):
                yield ast.Set(node.elts[:at] + node.elts[at + 1 :])
        case ast.Tuple(elts=elts, ctx=ast.Load()) if any(isinstance(one, ast.Starred) for one in elts):
            for at in range(len(elts)):
                yield ast.Tuple(elts[:at] + elts[at + 1 :], ast.Load())
        case ast.Constant(value=int(value) | float(value)) if not isinstance(value, bool):
            yield ast.Constant(value + 1)
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            pass  # never runs: the type checker proves it
        case ast.AugAssign() | ast.Expr(value=ast.Yield() | ast.YieldFrom() | ast.Call()):
            yield None


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module; defaults of classes are left alone: a fork can't exchange them."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    counted: Counter[tuple[str, str]] = Counter()
    for path, node in walk(tree, ()):
        function = ".".join(part.name for part in path if isinstance(part, (*FUNCTIONS, ast.ClassDef)))
        within = any(isinstance(part, FUNCTIONS) for part in path)
        in_class = any(isinstance(part, ast.ClassDef) for part in path)
        if isinstance(node, ast.expr) and is_annotation(node, path):
            continue
        if in_class and not within:
            continue
        for new in changes_of(node):
            before, after = shown(node), "nothing" if new is None else shown(new)
            change = f"`{before}` to `{after}`"
            counted[function, change] += 1
            if (number := counted[function, change]) > 1:
                change += f" ({number})"
            placed: Any = node if hasattr(node, "lineno") else path[-1]
            lines = frozenset(range(placed.lineno, placed.end_lineno + 1) if within else ())
            yield Mutant(module, function, change, partial(exchanged, tree, node, new), lines)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def walk(node: ast.AST, path: tuple[ast.AST, ...]) -> Iterator[tuple[tuple[ast.AST, ...], ast.AST]]:
    """Yield every node below this one, in order, with all that it stands in."""
    for child in ast.iter_child_nodes(node):
        below = (*path, node)
        yield below, child
        yield from walk(child, below)


def is_annotation(node: ast.expr, path: tuple[ast.AST, ...]) -> bool:
    """Tell whether a node belongs to a type, and so to nothing that runs."""
    chain = (*path, node)
    for upper, lower in pairwise(chain):
        if lower in (getattr(upper, "annotation", None), getattr(upper, "returns", None)):
            return True
    return False


def exchanged(tree: ast.Module, old: ast.AST, new: ast.AST | None) -> ast.Module:
    """Return the tree with one node exchanged, every line where it was."""

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if node is not old:
                return self.generic_visit(copy.copy(node))
            placed = ast.Pass() if new is None else copy.copy(new)
            return ast.copy_location(placed, node) if hasattr(node, "lineno") else placed

        def generic_visit(self, node: ast.AST) -> ast.AST:
            for name, value in ast.iter_fields(node):
                if isinstance(value, list):
                    setattr(
                        node, name, [self.visit(one) if isinstance(one, ast.AST) else one for one in value]
                    )
                elif isinstance(value, ast.AST):
                    setattr(node, name, self.visit(value))
            return node

    made: Any = Exchange().visit(tree)
    return cast("ast.Module", ast.fix_missing_locations(made))


def shown(node: ast.AST) -> str:
    """Return a node's text in one short line without what a table's cell can't hold."""
    match node:
        case ast.If(test=test):
            text = f"if {ast.unparse(test)}"
        case ast.IfExp(test=test):
            text = f"... if {ast.unparse(test)} else ..."
        case ast.comprehension():
            text = ast.unparse(node).strip()
        case ast.match_case():
            guard = "" if node.guard is None else f" if {ast.unparse(node.guard)}"
            text = f"case {ast.unparse(node.pattern)}{guard}"
        case _:
            text = ast.unparse(node)
    text = re.sub(r"\s+", " ", text).replace("|", "/").replace("`", "'")
    return text if len(text) <= MOST_SHOWN else f"{text[:70]} [...] {text[-32:]}"
