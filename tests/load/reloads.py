"""Changes of the gateway's file, valid and broken ones."""

import asyncio
import json
import os
import random
import signal

import messages
import wire
from gateway import TOKENS, configuration

# The time in seconds after which a change counts as without effect. `--watch` takes three seconds,
# and a reload at most six, but the machine may be busy.
TAKES = 60

# The text of the log for a rejected file.
REJECTED = "the reload failed"


def broken(valid, number):
    """Returns a file with a mistake, which is different for each number."""
    return [
        valid + f"\n[[composite_tools]\nbroken = {number}\n",
        valid.replace("[truncate]", f"[truncate]\nmistake_{number} = 1"),
        valid.replace('tool = "far_echo"', f'tool = "nowhere_{number}_echo"'),
        valid.replace("[[auth.tokens]]", f"[[no_tokens_{number}]]"),
        valid.replace("${TOKEN_BOB}", f"${{TOKEN_OF_NOBODY_{number}}}"),
        valid[: valid.index("[[composite_tools]]") + 200 - number % 20],
        f"\x00\x01 {number}",
    ][number % 7]


class Reloads:
    """Changes the file every few seconds, until the load stops."""

    def __init__(self, load):
        self.load = load
        self.gateway = load.gateway
        self.tally = load.tally
        self.version = 0
        self.mistakes = 0

    async def run(self):
        while not self.load.stopped():
            await asyncio.sleep(random.uniform(1, 3))
            await self.change()
            if not self.load.stopped():
                await asyncio.sleep(random.uniform(0, 2))
                await self.break_()

    def write(self, text):
        """Replaces the file at once, or in two parts as an editor may."""
        if random.random() < 0.5:
            new = self.gateway.file.with_suffix(".new")
            new.write_text(text)
            os.replace(new, self.gateway.file)
        else:
            self.gateway.file.write_text(text)
        if random.random() < 0.3:
            self.gateway.signal(signal.SIGHUP)

    async def change(self):
        self.version += 1
        self.write(configuration(self.gateway.port, self.version))
        if await self.until(self.is_current):
            self.tally.count("reloads", "applied")
            self.load.reloads += 1
        else:
            self.tally.fail(f"version {self.version} of the file is not in use after {TAKES} s")

    async def break_(self):
        self.mistakes += 1
        before = self.gateway.log().count(REJECTED)
        self.write(broken(configuration(self.gateway.port, self.version), self.mistakes))

        async def is_rejected():
            return self.gateway.log().count(REJECTED) > before

        kind = self.mistakes % 7
        if await self.until(is_rejected):
            self.tally.count("reloads", "rejected")
        else:
            self.tally.fail(f"the broken file {kind} was not rejected in {TAKES} s")
        self.tally.check(
            await self.until(self.is_current), f"the broken file {kind} changed the list of tools"
        )

    async def until(self, condition):
        for _ in range(TAKES * 4):
            if await condition():
                return True
            await asyncio.sleep(0.25)
        return False

    async def is_current(self):
        """Returns whether the list of tools is that of the current version."""
        try:
            connection = await wire.Connection.open(self.gateway.address)
            try:
                request = messages.stateless(TOKENS["dave"], 1, "tools/list", {})
                async with asyncio.timeout(TAKES):
                    response = await connection.exchange(request)
            finally:
                connection.close()
        except (wire.Closed, OSError):
            return False
        if response.status != 200:
            return False
        tools = json.loads(response.body)["result"]["tools"]
        versions = {tool["name"] for tool in tools if tool["name"].startswith("version_")}
        return versions == {f"version_{self.version}"}
