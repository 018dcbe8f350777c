"""The index for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hsimhash import HSimIndex, IndexNotFoundError, StoreClosedError
from hsimhash.aio import AsyncHSimIndex

FAR = 0x0F0F_0F0F_0F0F_0F0F


@asynccontextmanager
async def opened(folder: Path, **options: int) -> AsyncIterator[AsyncHSimIndex]:
    url = f"lmdb://{folder}/index"
    HSimIndex.create(url).close()
    async with await AsyncHSimIndex.open(url, **options) as index:
        yield index


def commits(index: AsyncHSimIndex) -> int:
    return index.index.store.session.last_transaction()[1]  # type: ignore[attr-defined, no-any-return]  # it is embedded


def run(folder: Path, work: Callable[[AsyncHSimIndex], Awaitable[None]], **options: int) -> None:
    async def main() -> None:
        async with opened(folder, **options) as index:
            await work(index)

    asyncio.run(main())


def test_an_awaited_index_does_what_an_index_does(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        await index.add(5, "a", first_seen=1)
        await index.add(FAR, "b", first_seen=2)
        assert [match.doc_id for match in await index.query(4)] == ["a"]
        assert await index.query(4, exclude="a") == []
        assert await index.query(4, max_distance=0) == []
        assert (await index.claim(4, "near-a")).match == (await index.query(4))[0]
        assert (await index.claim(FAR >> 4, "c")).is_new
        assert await index.remove("c") == 1
        assert await index.get("b") == index.index.get("b")
        assert await index.remove(["a", "c"]) == 1
        assert await index.query(4) == []

    run(tmp_path, work)


def test_tasks_share_calls_and_threads(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        before, threads = commits(index), threading.active_count()
        await asyncio.gather(*(index.add(number << 32, f"page-{number}") for number in range(500)))
        assert commits(index) - before < 50
        found = await asyncio.gather(*(index.query(number << 32, limit=1) for number in range(500)))
        assert [matches[0].doc_id for matches in found] == [f"page-{number}" for number in range(500)]
        assert threading.active_count() - threads <= 8

    run(tmp_path, work)


def test_only_so_many_are_under_way(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        before = commits(index)
        await asyncio.gather(*(index.add(number, f"page-{number}") for number in range(20)))
        assert commits(index) - before == 20  # one commit for each

    run(tmp_path, work, max_pending=1)


def test_a_task_that_is_cancelled_disturbs_no_other_one(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        tasks = [asyncio.create_task(index.add(number << 32, f"page-{number}")) for number in range(100)]
        await asyncio.sleep(0)  # all of them have submitted their calls
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in done] == [asyncio.CancelledError, type(None)] * 50
        stored = [await index.get(f"page-{number}") for number in range(1, 100, 2)]
        assert all(stored)

    run(tmp_path, work)


def test_wrong_arguments_and_a_closed_index_are_errors(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            await index.query(1, limit=0)
        with pytest.raises(TypeError):
            await index.add("x", "a")  # type: ignore[arg-type]
        await index.close()
        with pytest.raises(StoreClosedError):
            await index.query(1)
        with pytest.raises(StoreClosedError):
            await index.get("a")

    run(tmp_path, work)
    with pytest.raises(IndexNotFoundError):
        asyncio.run(AsyncHSimIndex.open(f"lmdb://{tmp_path}/none"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_pending must be at least 1, got 0"):
        AsyncHSimIndex(HSimIndex.create(f"memory://{tmp_path.name}"), max_pending=0)


def test_closing_ends_what_waits(tmp_path: Path) -> None:
    async def work(index: AsyncHSimIndex) -> None:
        tasks = [asyncio.create_task(index.add(number, f"page-{number}")) for number in range(50)]
        await asyncio.sleep(0)
        await index.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in done} <= {type(None), StoreClosedError}

    run(tmp_path, work)
