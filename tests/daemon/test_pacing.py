"""When passes happen, on a real loop with short times."""

import asyncio

from reclaimerd.daemon.pacing import LEAST_GAP_SECONDS, Pacing

BOUND = 5.0


def test_a_bell_ends_the_sleep_early() -> None:
    """An event long before the deadline brings the next pass at once."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        pacing = Pacing(loop.time)
        began = loop.time()
        loop.call_later(0.02, pacing.wake)
        await asyncio.wait_for(pacing.sleep_until(began + 60), BOUND)
        return loop.time() - began

    assert 0.02 <= asyncio.run(story()) < BOUND


def test_a_bell_that_rang_before_the_sleep_is_not_lost() -> None:
    """What happened during a pass brings another pass."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        pacing = Pacing(loop.time)
        pacing.wake()
        await asyncio.wait_for(pacing.sleep_until(loop.time() + 60), BOUND)

    asyncio.run(story())


def test_without_a_bell_it_sleeps_to_its_time_and_one_bell_is_one_pass() -> None:
    """The bell is cleared: the next sleep lasts."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        pacing = Pacing(loop.time)
        pacing.wake()
        await pacing.sleep_until(loop.time() + 60)
        began = loop.time()
        await pacing.sleep_until(began + 0.05)
        return loop.time() - began

    assert asyncio.run(story()) >= 0.05


def test_a_flood_of_bells_costs_a_bounded_number_of_passes() -> None:
    """Each sleep lasts its least gap, however often it is rung."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        pacing = Pacing(loop.time)
        began = loop.time()
        for _ in range(10):
            pacing.wake()
            await pacing.sleep_until(loop.time())
        return loop.time() - began

    assert asyncio.run(story()) >= 10 * LEAST_GAP_SECONDS * 0.9


def test_stop_ends_the_sleep_and_is_seen() -> None:
    """Both the sleeper and who waits for the end go on."""

    async def story() -> bool:
        pacing = Pacing(asyncio.get_running_loop().time)
        waiting = asyncio.ensure_future(pacing.stopped())
        pacing.stop()
        await asyncio.wait_for(pacing.sleep_until(pacing.clock() + 60), BOUND)
        await asyncio.wait_for(waiting, BOUND)
        return pacing.stopping

    assert asyncio.run(story())


def test_who_waits_for_a_pass_gets_one_that_began_after() -> None:
    """The count decides; without a pass the wait ends with no."""

    async def story() -> tuple[bool, bool]:
        pacing = Pacing(asyncio.get_running_loop().time)
        await pacing.passed()
        stale = await pacing.wait_for_pass(1, 0.02)
        waiting = asyncio.ensure_future(pacing.wait_for_pass(1, BOUND))
        await asyncio.sleep(0)
        await pacing.passed()
        return stale, await waiting

    assert asyncio.run(story()) == (False, True)
