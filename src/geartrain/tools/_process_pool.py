"""Worker processes: started on demand, used again, ended when idle for long, never more of them than the limit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from geartrain.limits import Limits
from geartrain.tools import _loading
from geartrain.tools._errors import ProcessesUnavailable
from geartrain.tools._pool import ProcessStatistics
from geartrain.tools._process_frames import Prepared, Target
from geartrain.tools._process_worker import Worker


class ProcessPool:
    """The worker processes of one event loop. Not for use from other threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._capacity = limits.process_calls_at_once
        self._workers: set[Worker] = set()
        self._idle: OrderedDict[Worker, asyncio.TimerHandle] = OrderedDict()
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._number = 0
        self._peak = 0
        self._started = 0
        self._closed = False

    def next_number(self) -> int:
        """Return a number that no other call of this pool has."""
        self._number += 1
        return self._number

    async def worker_for(self, target: Target) -> Worker:
        """Return a worker that has found the tool, to be given back or ended.

        Raises:
            ProcessesUnavailable: There is none to be had; a later try may succeed.
            WorkerEnded: It has ended while it imported the tool's module.
            TargetRefused: It cannot find the tool, or cannot import its module.
        """
        worker = await self._any(target)
        self._peak = max(self._peak, self._busy)
        if target in worker.prepared:
            return worker
        try:
            answer = await worker.prepare(target)
        except BaseException:
            worker.kill()
            raise
        assert isinstance(answer, Prepared), "asked to prepare"
        if answer.problem:
            self.give_back(worker)
            raise TargetRefused(answer.problem)
        worker.prepared.add(target)
        return worker

    async def _any(self, target: Target) -> Worker:
        """Return an idle worker, one that knows the tool if possible, or a new one as soon as there may be one."""
        if _loading.in_a_worker:
            raise ProcessesUnavailable("this is a worker process, which has no workers of its own")
        while not self._closed:
            idle = [worker for worker in self._idle if not worker.ending]
            if idle:
                known = [worker for worker in idle if target in worker.prepared]
                worker = (known or idle)[-1]
                self._idle.pop(worker).cancel()
                return worker
            if len(self._workers) < self._capacity:
                return self._new()
            await self._room()
        raise ProcessesUnavailable("the pool is closed")

    async def _room(self) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[room] = None
        try:
            await room
        except BaseException:
            if room.done() and not room.cancelled():
                self._make_room()  # it was for somebody who does not want it any more
            raise
        finally:
            self._waiting.pop(room, None)

    def _new(self) -> Worker:
        worker = Worker(self._limits)
        self._workers.add(worker)
        self._started += 1
        worker.gone.add_done_callback(lambda _: self._gone(worker))
        return worker

    def give_back(self, worker: Worker) -> None:
        """Take a worker back that has nothing to do."""
        if self._closed:
            worker.quit()
        elif not worker.ending:
            seconds = self._limits.process_idle_seconds
            self._idle[worker] = asyncio.get_running_loop().call_later(seconds, worker.quit)
            self._make_room()

    def _gone(self, worker: Worker) -> None:
        self._workers.discard(worker)
        timer = self._idle.pop(worker, None)
        if timer is not None:
            timer.cancel()
        self._make_room()

    def _make_room(self) -> None:
        for room in self._waiting:
            if not room.done():
                room.set_result(None)
                return

    async def aclose(self, seconds: float) -> None:
        """End all workers and wait for that, at most *seconds* and once more as long with force."""
        self._closed = True
        for room in self._waiting:
            if not room.done():
                room.set_result(None)
        for worker in list(self._workers):
            if worker in self._idle:
                self._idle[worker].cancel()
                worker.quit()
            elif not worker.ending:
                worker.kill()
        for force in (False, True):
            left = [worker.gone for worker in self._workers]
            if not left:
                return
            if force:
                for worker in self._workers:
                    worker.force()
            await asyncio.wait(left, timeout=seconds)

    @property
    def _busy(self) -> int:
        return sum(not worker.ending and worker not in self._idle for worker in self._workers)

    def statistics(self) -> ProcessStatistics:
        """Return how many workers there are and what they do."""
        return ProcessStatistics(
            capacity=self._capacity,
            processes=len(self._workers),
            busy=self._busy,
            ending=sum(worker.ending for worker in self._workers),
            waiting=len(self._waiting),
            busy_peak=self._peak,
            started=self._started,
            ended=self._started - len(self._workers),
        )


class TargetRefused(Exception):
    """A worker cannot find a tool; the text says why."""
