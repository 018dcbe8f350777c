"""The ladder of imports, and what importing hsimhash may cost."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case
PACKAGE = Path(__file__).parents[1] / "hsimhash"
LADDER = [
    {"errors", "extras", "native_package"},
    {"call_sharing", "durations", "files", "locks", "metrics", "processes"},
    {"fingerprint", "layout", "progress", "query_log", "sample"},
    {"rowkey", "cover", "hfile"},
    {"plan"},
    {"store"},
    {"matching", "inputs"},
    {"claims"},
    {"index"},
    {"aio", "load", "pairs"},
    {"dedup"},
    {"settings", "spark", "calibrate", "serve"},
    {"cli", "compat", "conformance", "contrib"},
]


NATIVE_SWITCH = ("os.environ.get(SWITCH)", "os.environ.get", "os.environ")  # also for programs that import hsimhash
HBASE_ROOMS = ["gateway", "rows", "upkeep", "files"]
PAGE = PACKAGE.parent / "docs" / "pages" / "explanation" / "architecture.md"


def test_the_page_has_the_same_ladder() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rungs = re.findall(r"^\| \d+ \| (.+?) \|", page, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", names)) for names in rungs] == LADDER


def part_of(path: Path) -> str:
    """Return a file's part of the package; `store/conformance` is its own part because it tests indexes on stores."""
    parts = path.relative_to(PACKAGE).parts
    return "conformance" if parts[:2] == ("store", "conformance") else parts[0].removesuffix(".py")


def rung(module: str) -> int:
    return next(number for number, names in enumerate(LADDER) if module in names)


@cache
def imported(path: Path) -> set[str]:
    """Return the modules and names that a file imports anywhere, including in functions and under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found - {"hsimhash.__version__"}


FILES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in ("__init__.py", "__main__.py")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = part_of(path)
    for name in {name.split(".")[1] for name in imported(path) if name.startswith("hsimhash.")}:
        assert name == own or rung(name) < rung(own), f"{path} imports {name}"


def test_the_rooms_of_hbase_import_one_way_as_the_page_has_them() -> None:
    hbase = PACKAGE / "store" / "hbase"
    assert [path.parent.name for path in sorted(hbase.glob("*/__init__.py"))] == sorted(HBASE_ROOMS)
    for path in sorted(hbase.glob("*/*.py")):
        names = [name.split(".") for name in imported(path) if name.startswith("hsimhash.store.hbase.")]
        seen = {name[3] for name in names}
        allowed = HBASE_ROOMS[: HBASE_ROOMS.index(path.parent.name) + 1]
        assert seen <= set(allowed), f"{path} imports {seen - set(allowed)}"
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"`(\w+)/` \(", page.partition("has four subpackages")[2])[: len(HBASE_ROOMS)] == HBASE_ROOMS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints_reads_the_environment_or_exits(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Attribute)) else ""
        if path.name == "native_package.py" and text in NATIVE_SWITCH:
            continue
        assert not text.startswith(("print(", "os.environ", "os.getenv", "sys.exit(")), f"{path}: {text}"


def defined(path: Path) -> set[str]:
    """Return the classes, type aliases and public functions of a module."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            named = {one.id for one in node.targets if isinstance(one, ast.Name)}
            names |= {name for name in named if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name)}  # not A_CONSTANT
    return names


def store_of(path: Path) -> str:
    """Return the store whose folder contains a module, or "". Stores use the same names for the same things."""
    parts = path.relative_to(PACKAGE).parts
    return parts[1] if parts[0] == "store" and len(parts) > 2 else ""


# hsimhash.spark provides the single-machine jobs, from DataFrame to DataFrame, under the same names.
ALSO_ON_SPARK = {"dedup", "write_tables"}


def test_no_class_alias_or_public_function_has_the_name_of_another() -> None:
    places: dict[str, dict[str, Path]] = {}
    for path in FILES:
        own = store_of(path)
        for name in defined(path) - (ALSO_ON_SPARK if part_of(path) == "spark" else set()):
            others = places.setdefault(name, {})
            taken = [other for store, other in others.items() if store == own or "" in (store, own)]
            assert not taken, f"{name} is defined in {path} and in {taken[0]}"
            others[own] = path


def test_what_modules_import_from_each_other_has_a_name_of_its_own() -> None:
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    places: dict[str, str] = {}
    for module, name in sorted({tuple(one.rsplit(".", 1)) for path in FILES for one in imported(path) if "." in one}):
        path = modules.get(module)
        if path is None or store_of(path) or f"{module}.{name}" in modules:
            continue
        if part_of(path) == "spark" and name in ALSO_ON_SPARK:
            continue
        if any(one.endswith(f".{name}") for one in imported(path)):  # the module re-exports what another defines
            continue
        assert places.setdefault(name, module) == module, f"{name} is imported from {module} and from {places[name]}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    left = {name: imported(path) & modules.keys() - {name} for name, path in modules.items()}
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
    assert not left, f"these import each other, or what does: {sorted(left)}"


def test_importing_loads_no_dictionary_and_configures_nothing() -> None:
    code = (
        "import sys, logging\n"
        "from hsimhash import *\n"
        "heavy = {'jieba', 'rjieba', 'rich', 'click', 'pydantic', 'happybase', 'thriftpy2', 'psycopg'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not logging.getLogger().handlers\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_test_modules_have_names_of_their_own() -> None:
    """Otherwise `pytest`, which collects all folders in one run, fails."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py") if "examples" not in path.parts]
    assert sorted(names) == sorted(set(names))
