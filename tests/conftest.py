"""Shared fixtures: small file systems to fill up; no test leaves a process or an unsound index behind."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hsimhash.errors import HsimhashError
from hsimhash.native_package import SWITCH
from hsimhash.store.conformance.place import StorePlace
from hsimhash.store.lmdb.store import LmdbStore
from tests.support.effort import IS_THOROUGH, cases_left_out, tries
from tests.support.places import model_place
from tests.support.processes import children

# Machines are shared: a slow example, or one that is slow to generate, is not a failure.
settings.register_profile(
    "hsimhash", max_examples=tries(100, 12), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hsimhash")

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in programs started with & and in their children


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the cases to try, and give every pytest-xdist worker an early share of the slowest tests.

    Otherwise one worker would run all of them at the end. Every worker gets the same number of adjacent tests. Those
    of a module marked `together` stay together because they share a server.
    """
    left_out = cases_left_out([item for item in items if item.path.parent.name != "integration"])
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_long = item.path.parent.name == "integration" or item.path.name == "test_stress.py"
        (long if is_long else others).append(item)
    blocks = groupby(long, lambda item: item.path if item.get_closest_marker("together") else item)
    held = [list(block) for _, block in blocks]
    items.clear()
    for worker in range(workers):
        share = others[worker * len(others) // workers : (worker + 1) * len(others) // workers]
        first = len(share) * worker // (2 * workers)  # the first starts the server; the others need it later
        items += [*share[:first], *chain(*held[worker::workers]), *share[first:]]


@pytest.fixture
def signed_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign all texts with numpy, including those in processes that the test starts."""
    monkeypatch.setenv(SWITCH, "0")


def pytest_collection_finish() -> None:
    """Exempt the many objects that live until the end from garbage collection, in forked children too."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    """Kill the processes that a failed test left running; fixtures with a wider scope keep theirs."""
    before = children()
    yield
    for pid in children() - before:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _indexes_that_a_test_leaves_are_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the embedded indexes in a test's folder, unless it is marked `damages`."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or request.node.get_closest_marker("damages"):
        return
    for data in folder.rglob("data.mdb"):
        try:
            store = LmdbStore(f"lmdb://{data.parent}", data.parent)
        except HsimhashError:
            continue  # not an index, according to the store itself
        with store:
            report = store.check()
        assert report.is_sound, f"{data.parent}: {report}"


@pytest.fixture(scope="session")
def labelled_data() -> Path:
    """Return the folder of labelled data."""
    if not os.environ.get("HSIMHASH_DATA"):
        pytest.skip("HSIMHASH_DATA does not name the folder of labelled data")
    return Path(os.environ["HSIMHASH_DATA"])


@pytest.fixture(params=["lmdb", "memory", "hbase-model"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """Return where contract tests create their stores; modules that test other stores override this fixture."""
    if request.param == "hbase-model":
        return model_place()
    numbers = itertools.count()
    return StorePlace(lambda: f"{request.param}://{tmp_path / str(next(numbers))}", is_quick=not IS_THOROUGH)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test in an empty folder, without files such as settings."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Yield a function that mounts a file system of the given size, such as `8m`; requires permission to mount."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("no right to mount a small file system here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_ext4(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on an 11 MB ext4, which reserves its last blocks; requires mkfs and permission to mount."""
    image, folder = tmp_path / "ext4.image", tmp_path / "ext4"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(11 << 20)
    make = ["mkfs.ext4", "-q", "-b", "4096", "-m", "0", str(image)]
    mount = ["mount", "-o", "loop", str(image), str(folder)]
    if os.geteuid() != 0 or shutil.which(make[0]) is None:
        pytest.skip("no right to mount an ext4 here, or no mkfs.ext4")
    subprocess.run(make, check=True)
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("an image of an ext4 cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def read_only_disk(small_disk: Callable[[str], Path]) -> tuple[Path, Callable[[], None]]:
    """Return a writable folder and a function that makes its file system read-only."""
    folder = small_disk("64m")
    return folder, lambda: subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True) and None
