# SPDX-License-Identifier: Apache-2.0
"""Reads one Python file part by part: its functions, classes, methods and named values."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

_Function = ast.FunctionDef | ast.AsyncFunctionDef
REST = ""
"""The name of the part that is a module's statements without a name."""


@dataclass(frozen=True)
class Imported:
    """A module, and the name taken from it (empty: the module itself)."""

    module: str
    name: str = ""


@dataclass
class Part:
    """The names and texts that the code of one part uses.

    names: of variables, functions and classes. attributes: (what stands before the dot, what behind), where the first
    is a name. called: methods. parameters: of functions, in tests the names of fixtures. texts: strings that are no
    docstrings; a path such as `ROOT / "docs"` is "./docs", and `ROOT.glob("docs/*.md")` is "./docs/*.md".
    patterns: what import_module is called with, `*` for what is filled in.
    """

    names: set[str] = field(default_factory=set)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)

    def add(self, node: ast.AST) -> None:
        """Add what this code uses."""
        docstrings = set[int]()
        for one in ast.walk(node):
            match one:
                case ast.Expr(value=ast.Constant() as text):
                    docstrings.add(id(text))
                case ast.Name():
                    self.names.add(one.id)
                case ast.Attribute(value=ast.Name(id=before)):
                    self.attributes.add((before, one.attr))
                case ast.Constant(value=str() as said) if id(one) not in docstrings:
                    self.texts.add(said)
                case ast.BinOp(op=ast.Div()):
                    self.texts.add(f"./{_joined(one)}")
                case ast.Call(
                    func=ast.Attribute(attr="glob" | "rglob" as method, value=folder),
                    args=[ast.Constant(value=str() as pattern)],
                ) if _is_constant(folder):
                    below = "**/" if method == "rglob" else ""
                    self.texts.add(f"./{_joined(folder)}/{below}{pattern}".replace("//", "/"))
                case ast.arg():
                    self.parameters.add(one.arg)
                case ast.Call(func=ast.Attribute(attr=method)):
                    self.called.add(method)
            if isinstance(one, ast.Call) and ast.unparse(one.func).endswith("import_module"):
                self.patterns |= {_pattern(text) for text in one.args[:1] if isinstance(text, ast.JoinedStr)}


@dataclass(frozen=True)
class Source:
    """A file's imports by the name that they have in it, and its parts: `name`, `Class.method`, and REST."""

    imports: Mapping[str, Imported]
    parts: Mapping[str, Part]

    @classmethod
    def of(cls, text: str, package: str) -> "Source":
        """Read a file's text. package: for relative imports. A text that is no Python has no parts."""
        return _read(text, package)


@cache
def _read(text: str, package: str) -> Source:
    tree = _tree(text)
    imports: dict[str, Imported] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {one.asname or one.name: Imported(one.name) for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            imports |= {one.asname or one.name: Imported(module, one.name) for one in node.names}
    parts: dict[str, Part] = defaultdict(Part)
    for name, node in _named(tree):
        parts[name].add(node)
    return Source(imports, dict(parts))


def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each statement of a module, and of its classes, with the name of the part that it belongs to."""
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.ClassDef():
                for one in [*node.decorator_list, *node.bases, *node.keywords, *node.body]:
                    yield f"{node.name}.{one.name}" if isinstance(one, _Function) else node.name, one
                yield node.name, ast.Pass()
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case _:
                yield REST, node


def differing_parts(before: str, after: str) -> set[str]:
    """The parts of a file whose code is not the same in the two texts, the new and removed ones too."""
    dumps: list[dict[str, list[str]]] = []
    for text in (before, after):
        found: dict[str, list[str]] = defaultdict(list)
        for name, node in _named(_tree(text)):
            found[name].append(ast.dump(node))
        dumps.append(found)
    return {name for name in dumps[0].keys() | dumps[1].keys() if dumps[0].get(name) != dumps[1].get(name)}


def _is_constant(folder: ast.expr) -> bool:
    """True for a path such as `ROOT` or `ROOT / "docs"`, which is of the checkout and not of a test's own."""
    while isinstance(folder, ast.BinOp):
        folder = folder.left
    return isinstance(folder, ast.Name) and folder.id.isupper()


def _joined(node: ast.expr) -> str:
    """The constant end of a path such as `ROOT / "docs" / name`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, str):
            return f"{_joined(node.left)}/{node.right.value}".lstrip("/")
        return _joined(node.left)
    return ""


def _pattern(text: ast.JoinedStr) -> str:
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "*" for one in text.values)
