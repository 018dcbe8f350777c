"""`ingest` into a new index whose rarity table is fitted to the inputs."""

from __future__ import annotations

import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import Fit
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.load.fitting import fit_inputs
from hsimhash.load.job import Job
from hsimhash.store import Document
from hsimhash.store.lmdb import files
from tests.support.command_line import own_process, run
from tests.support.effort import tries
from tests.support.half_states import calls_of, killed_at_each_step
from tests.support.processes import wait_until
from tests.test_dedup_fit import pages, written

FINGERPRINTS = ("--fingerprint-field", "fingerprint", "--fingerprint-format", "hex")
AUTO_3 = ("--profile", "auto-3", "--workers", "1")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return written(tmp_path / "pages.jsonl", pages(150, 20))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb://{tmp_path / 'index'}"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table that was not fitted to the source."""
    fit = Fit(Profile.named("auto-3"))
    fit.add([page["text"] for page in pages(220, 0)])
    path = tmp_path / "own.rarity"
    path.write_bytes(fit.table().content())
    return str(path)


def profile_of(url: str) -> Profile:
    with HSimIndex.open(url) as index:
        return index.profile


def contents(url: str) -> tuple[Profile, list[Document]]:
    """Return an index's profile and its documents, without the times."""
    with HSimIndex.open(url) as index:
        return index.profile, sorted(one._replace(first_seen=0) for one in index.documents())


def ingested(source: str, url: str, *options: str, code: int = 0) -> str:
    result = run("ingest", source, "--store", url, *AUTO_3, *options)
    assert result.exit_code == code, result.stderr
    return result.stderr


def test_a_new_index_keeps_the_table_that_fit_would_write(source: str, url: str, tmp_path: Path) -> None:
    told = ingested(source, url)
    assert "learnt from 170 documents" in told
    assert run("fit", source, "--output", str(tmp_path / "pages.rarity")).exit_code == 0
    assert profile_of(url) == Profile.named(f"auto-3:rarity={tmp_path / 'pages.rarity'}")
    ingested(source, f"{url}-given", "--fit", str(tmp_path / "pages.rarity"))
    assert contents(f"{url}-given") == contents(url)


def test_pages_of_a_template_are_told_apart_only_where_the_index_was_fitted(source: str, url: str) -> None:
    ingested(source, url, "--on-duplicate", "skip")
    assert len(contents(url)[1]) == 150
    ingested(source, f"{url}-off", "--on-duplicate", "skip", "--fit", "off")
    assert profile_of(f"{url}-off") == Profile.named("auto-3")
    assert len(contents(f"{url}-off")[1]) < 50


def test_a_missing_package_is_an_error_before_the_index_is_created(
    source: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the table, the index would keep the weights of general text for good."""
    with Path(source).open("a") as file:
        file.write(
            '{"id": "page", "text": "<!DOCTYPE html><html><body><p>A page among the texts.</p></body></html>"}\n'
        )
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "trafilatura", None)
        assert "pass --extract none" in ingested(source, url, *AUTO_3, code=2)
        assert not Path(url.removeprefix("lmdb://")).exists()
        assert ingested(source, url, *AUTO_3, "--extract", "none").count("word weights") == 1
    assert profile_of(url).rarity != Profile.named("auto-3").rarity


def test_a_job_that_has_not_read_anything_may_be_started_with_other_options(
    source: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(source).open("r+") as file:
        texts = file.read()
        file.seek(0)
        file.write(
            '{"id": "page", "text": "<!DOCTYPE html><html><body><p>A page among the texts.</p></body></html>"}\n'
        )
        file.write(texts)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "trafilatura", None)
        for options in ((), ("--on-duplicate", "skip")):
            assert "pass --extract none" in ingested(source, url, *AUTO_3, "--fit", "off", *options, code=2)
        ingested(source, url, *AUTO_3, "--fit", "off", "--extract", "none")


def test_an_index_that_exists_keeps_its_table(source: str, url: str, table: str, tmp_path: Path) -> None:
    ingested(source, url, "--fit", table)
    more = written(tmp_path / "more.jsonl", [{**page, "id": f"more-{page['id']}"} for page in pages(130, 0)])
    for options in ((), ("--fit", "off"), ("--fit", table)):
        ingested(more, url, *options, "--fresh")
    assert profile_of(url) == Profile.named(f"auto-3:rarity={table}")
    ingested(more, f"{url}-general", "--fit", "off")
    ingested(source, f"{url}-general")
    assert profile_of(f"{url}-general") == Profile.named("auto-3")
    assert len(contents(f"{url}-general")[1]) == 300


@pytest.mark.parametrize(
    ("made", "code", "reason"),
    [
        ("auto", 5, "is not its rarity table"),
        ("off", 5, "is not its rarity table"),
        ("auto-2", 2, "a rarity table requires weights=rarity"),
    ],
)
def test_another_table_than_the_indexs_is_refused_with_the_reason(
    source: str, url: str, table: str, made: str, code: int, reason: str
) -> None:
    if made == "auto-2":
        HSimIndex.create(url, profile="auto-2").close()
    else:
        ingested(source, url, "--fit", made)
    before = contents(url)
    result = run("ingest", source, "--store", url, "--fit", table, "--fresh")
    assert result.exit_code == code
    assert reason in result.stderr
    assert contents(url) == before


@pytest.mark.parametrize("command", ["query", "describe", "export"])
def test_the_profile_that_was_asked_for_opens_the_index_that_was_fitted(source: str, url: str, command: str) -> None:
    ingested(source, url)
    given = {"query": ("--id", "p1"), "describe": (), "export": ()}[command]
    environment = {"HSIMHASH_PROFILE": "auto-3"}
    assert run(command, *given, "--store", url, environment=environment).exit_code == 0
    refused = run(command, *given, "--store", url, environment={"HSIMHASH_PROFILE": "auto-3:n=3"})
    assert refused.exit_code == 5


@pytest.mark.parametrize("wrong", ["no file", "no table"])
def test_a_wrong_table_is_refused_before_anything_is_written(source: str, url: str, tmp_path: Path, wrong: str) -> None:
    name = source if wrong == "no table" else str(tmp_path / "none.rarity")
    told = ingested(source, url, "--fit", name, code=2)
    assert name in told
    assert not (tmp_path / "index").exists()


def test_fingerprints_are_taken_for_those_of_the_table_that_was_given(url: str, table: str, tmp_path: Path) -> None:
    lines = [{"id": str(number), "fingerprint": f"{number:016x}"} for number in range(120)]
    result = run("ingest", written(tmp_path / "given.jsonl", lines), "--store", url, "--fit", table, *FINGERPRINTS)
    assert result.exit_code == 0, result.stderr
    assert f"assuming that the fingerprints were made with profile {profile_of(url).name};" in result.stderr
    assert profile_of(url) == Profile.named(f"auto-3:rarity={table}")


@pytest.mark.parametrize("kind", ["few", "a stream", "another profile"])
def test_what_cannot_be_fitted_goes_by_general_text(tmp_path: Path, url: str, kind: str) -> None:
    source = written(tmp_path / "pages.jsonl", pages(40 if kind == "few" else 150, 0))
    profile = "auto-2" if kind == "another profile" else "auto-3"
    given = Path(source).read_text() if kind == "a stream" else ""
    result = run("ingest", "-" if given else source, "--store", url, "--profile", profile, given=given)
    assert result.exit_code == 0, result.stderr
    assert profile_of(url) == Profile.named(profile)


STEPS = {  # where a kill may happen: during the fit, after it, when the index is created, and in the job
    "fit": calls_of(Fit, "wanted"),
    "fitted": calls_of(Fit, "table"),
    "index": calls_of(files, "create_files"),
    "job": calls_of(Job, "save"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("mode", ["add", "skip"])
def test_a_killed_ingest_that_is_begun_again_ends_as_an_undisturbed_one(
    source: str, url: str, tmp_path: Path, step: str, mode: str
) -> None:
    options = ("--on-duplicate", mode)
    ingested(source, f"{url}-undisturbed", *options)
    expected = contents(f"{url}-undisturbed")
    kills = killed_at_each_step(
        lambda: shutil.rmtree(tmp_path / "index", ignore_errors=True),
        lambda: run("ingest", source, "--store", url, *AUTO_3, *options),
        STEPS[step],
    )
    tried = 0
    for _ in islice(kills, tries(20, 2)):
        ingested(source, url, *options)
        assert contents(url) == expected
        tried += 1
    assert tried


@pytest.mark.parametrize("begun", ["index", "job"])
def test_inputs_that_grew_since_a_kill_do_not_change_the_table(
    source: str, url: str, tmp_path: Path, begun: str
) -> None:
    general = Profile.named("auto-3")
    fitted = general.fitted(fit_inputs(find_inputs([source], InputOptions()), InputOptions(), general).table)
    work = lambda: run("ingest", source, "--store", url, *AUTO_3)  # noqa: E731
    assert next(killed_at_each_step(lambda: None, work, STEPS[begun])) == 1
    grown = [*pages(150, 20), *({**page, "id": f"new-{page['id']}"} for page in pages(260, 0)[150:])]
    written(Path(source), grown)
    ingested(source, url, *(["--fresh"] if begun == "job" else []))
    profile, documents = contents(url)
    assert profile == fitted
    assert len(documents) == len(grown)


def assert_a_killed_ingest_ends_as_an_undisturbed_one(url: str, folder: Path) -> None:
    """Ingest into a new index on any store, kill the process at work, and start it again; later ingest more inputs."""
    source, undisturbed = written(folder / "pages.jsonl", pages(150, 20)), f"lmdb://{folder / 'undisturbed'}"
    ingested(source, undisturbed)
    job = folder / "job"
    process = own_process("ingest", source, "--store", url, *AUTO_3, "--rate", "20", "--job", str(job))
    wait_until((job / "checkpoint.json").exists, process)
    process.kill()
    process.communicate()
    ingested(source, url, "--job", str(job))
    assert contents(url) == contents(undisturbed)
    more = written(folder / "more.jsonl", [{**page, "id": f"more {page['id']}"} for page in pages(120, 0)])
    for one in (url, undisturbed):
        ingested(more, one, "--job", str(folder / f"job-{one.partition(':')[0]}"))
    assert contents(url) == contents(undisturbed)


def test_a_process_that_is_killed_at_work_and_begun_again_ends_as_an_undisturbed_one(url: str, tmp_path: Path) -> None:
    assert_a_killed_ingest_ends_as_an_undisturbed_one(url, tmp_path)
