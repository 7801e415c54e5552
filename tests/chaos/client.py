"""The client of the chaos test, which starts a run, answers its questions, and may cancel it."""

import asyncio
import json
import random
import time

import composites
import history
import messages
import wire

CAPABILITIES = {
    "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}
}

# The pause between two requests about a task, in seconds.
PAUSE = 1

# The time in seconds after which a request is given up.
TIMEOUT = 15

# The time in seconds after which a run must have ended. It includes several takeovers.
LONGEST = 300

# The share of runs that the client cancels.
CANCELLED = 0.08


class Unanswered(Exception):
    """A request got no answer."""


class Refused(Exception):
    """A request got a JSON-RPC error."""


class Client:
    def __init__(self, replicas, runs, tally):
        self.replicas = replicas
        self.runs = runs
        self.tally = tally
        self.requests = 0

    async def request(self, method, params):
        """Sends a request to any replica, and returns the result."""
        self.requests += 1
        request = messages.stateless(None, self.requests, method, params, CAPABILITIES)
        try:
            async with asyncio.timeout(TIMEOUT):
                connection = await wire.Connection.open(random.choice(self.replicas).address)
                try:
                    response = await connection.exchange(request)
                finally:
                    connection.close()
            message = response.messages()[-1]
        except (wire.Closed, OSError, TimeoutError, ValueError, IndexError) as error:
            raise Unanswered(repr(error)) from None
        if "result" not in message:
            raise Refused(message.get("error", {}).get("message", response.text()[:200]))
        return message["result"]

    async def insist(self, method, params):
        """Repeats a request until it is answered."""
        while True:
            try:
                return await self.request(method, params)
            except Unanswered:
                self.tally.count("requests", "unanswered")
            except Refused as error:
                if "unknown task" in str(error):
                    raise
                self.tally.count("requests", "rejected")
            await asyncio.sleep(random.uniform(0.2, 1) * PAUSE)

    async def drive(self, composite):
        """Starts a run, and waits until it has ended. Returns whether there is a task."""
        run = self.runs.new(composite)
        params = {
            "name": composite,
            "arguments": {"run": run.number, "items": list(range(composites.ELEMENTS))},
        }
        try:
            created = await self.request("tools/call", params)
        except Unanswered:
            self.runs.end(run, "start not answered")
            return False
        except Refused as error:
            self.runs.end(run, "start rejected", str(error))
            return False
        task = created["taskId"]
        try:
            async with asyncio.timeout(LONGEST):
                await self.finish(run, task)
        except TimeoutError:
            self.runs.end(run, "not ended")
            self.tally.fail(f"end: {run} did not end within {LONGEST} s")
        except Refused as error:
            self.runs.end(run, "unknown")
            self.tally.fail(f"end: {run} is not known any more: {error}")
        return True

    async def finish(self, run, task):
        cancel_at = None
        if run.composite == "careful" or random.random() < CANCELLED:
            cancel_at = run.started + random.uniform(0, 3)
        while True:
            left = PAUSE if cancel_at is None else cancel_at - time.monotonic()
            await asyncio.sleep(max(0, min(random.uniform(0.3, 1) * PAUSE, left)))
            if cancel_at is not None and cancel_at <= time.monotonic():
                cancel_at = None
                run.cancelling = time.monotonic()
                await self.insist("tasks/cancel", {"taskId": task})
                run.cancelled = time.monotonic()
            state = await self.insist("tasks/get", {"taskId": task})
            if state["status"] == "input_required":
                await self.answer(run, task, state["inputRequests"])
            elif state["status"] != "working":
                self.end(run, state)
                return

    async def answer(self, run, task, questions):
        """Sends two different answers to each question, at the same time to any replicas."""

        async def send(number):
            answers = {}
            for key in questions:
                note = f"{run.number}/{key}/{number}/{random.getrandbits(32):08x}"
                answers[key] = {"action": "accept", "content": {"note": note}}
            try:
                await self.request("tasks/update", {"taskId": task, "inputResponses": answers})
                self.tally.count("answers", "sent")
            except Unanswered:
                self.tally.count("answers", "not acknowledged")
            except Refused:
                self.tally.count("answers", "rejected")

        await asyncio.gather(*map(send, range(random.choice([1, 2]))))

    def end(self, run, state):
        """Checks the outcome of a task."""
        status = state["status"]
        if status == "cancelled":
            self.runs.end(run, "cancelled")
            self.tally.check(run.cancelling, f"outcome: {run} was cancelled by nobody")
            return
        if status == "failed":
            self.runs.end(run, "failed", json.dumps(state["error"]))
            self.tally.fail(f"outcome: {run} failed: {state['error']}")
            return
        result = state["result"]
        text = " ".join(block.get("text", "") for block in result["content"])
        if not result.get("isError"):
            self.runs.end(run, "completed")
            self.check_result(run, result)
        elif history.LOST.search(text):
            self.runs.end(run, "lost", text)
        elif history.TIMED_OUT.search(text):
            self.runs.end(run, "timed out", text)
        elif history.UNSAVED.search(text):
            self.runs.end(run, "not stored", text)
        else:
            self.runs.end(run, "error", text)
            self.tally.fail(f"outcome: {run} failed: {text[:300]}")

    def check_result(self, run, result):
        """Checks that the result has the outputs of all steps, once each."""
        expected = composites.values(run.composite, run.number)
        if expected is None:
            return
        values = result["structuredContent"]["values"]
        if run.composite == "tolerant":
            values = {step: value for step, value in values.items() if value != "lost"}
            expected = {step: expected[step] for step in values}
        self.tally.check(
            values == expected, f"outcome: {run} has the result {values}, not {expected}"
        )
