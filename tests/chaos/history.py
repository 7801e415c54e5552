"""The runs of the chaos test, as clients, the backend and the disruptions have seen them."""

import collections
import re
import time

import composites
import shop

# The errors of runs that were interrupted, of runs whose state could not be stored, and of runs with
# a call whose result was not stored in time.
LOST = re.compile(r"the server stopped while `([^`]+)` ran")
UNSAVED = re.compile(r"the run cannot be stored|another process has taken over the run")
TIMED_OUT = re.compile(r"timed out: no answer within")

# The machine may be slow. Calls that a cancellation does not end take three times as long.
SLACK = 30

# The maximum time in seconds until the call of a replica reaches the backend, on a slow machine.
DELAY = 5


class Run:
    """A run and its history."""

    def __init__(self, number, composite):
        self.number = number
        self.composite = composite
        self.calls = []
        # The values that calls have returned, as the backend knows them.
        self.values = set()
        self.started = time.monotonic()
        self.ended = None
        # The kind of the outcome, and its text. A run without a task has no outcome.
        self.outcome = None
        self.text = ""
        # When the client requested the cancellation, and when the server acknowledged it.
        self.cancelling = None
        self.cancelled = None
        # The number of kills that hit the run, and the number of calls at the last one.
        self.kills = 0
        self.calls_at_kill = 0

    def __str__(self):
        return f"run {self.number} of `{self.composite}`"

    def add(self, call):
        if call.is_answered:
            self.values.add(f"{self.number}/{call.key}")

    def boundary(self, replica):
        """Returns how many different calls have ended, and whether this replica makes calls.

        Returns nothing if the run has ended or made all calls, or if this replica has not made a
        call of it since the last kill.
        """
        calls = self.calls[self.calls_at_kill:]
        has_ended = self.ended or len(self.values) >= composites.calls(self.composite)
        if has_ended or not calls or calls[-1].replica != replica:
            return None
        is_calling = any(not call.ended and call.replica == replica for call in self.calls)
        return len(self.values), is_calling

    def hit(self):
        """Records that the replica of the run was killed."""
        self.kills += 1
        self.calls_at_kill = len(self.calls)

    def history(self):
        """Returns the history of the run as lines."""
        lines = [(self.started, f"{self} is called")]
        for call in self.calls:
            lines.append((call.began, f"call of {call}"))
            if call.ended:
                lines.append((call.ended, f"end of {call}"))
        if self.cancelled:
            lines.append((self.cancelled, "cancelled by the client"))
        if self.ended:
            lines.append((self.ended, f"outcome: {self.outcome} {self.text}"))
        return sorted(lines)


class Runs(dict):
    """All runs by number."""

    def __init__(self, tally):
        self.tally = tally
        # The runs that have not ended.
        self.open = set()

    def new(self, composite):
        run = Run(len(self) + 1, composite)
        self[run.number] = run
        self.open.add(run)
        return run

    def end(self, run, outcome, text=""):
        run.ended = time.monotonic()
        run.outcome = outcome
        run.text = text
        self.open.discard(run)
        self.tally.count("runs", outcome)
        if run.kills:
            self.tally.count("killed runs", outcome)


def check(run, tally, disruptions):
    """Checks a run that has ended, or whose start was not answered."""
    counts = collections.Counter(call.key for call in run.calls if call.tool in shop.ONCE)
    for key, count in counts.items():
        tally.check(count == 1, f"calls: `{key}` of {run} was called {count} times")
    check_used(run, tally, disruptions)
    answers = collections.defaultdict(set)
    for call in run.calls:
        if call.answer is not None:
            answers[call.key].add(call.answer)
    for key, used in answers.items():
        tally.check(len(used) == 1, f"answers: `{key}` of {run} has used the answers {used}")
    if run.cancelled:
        check_cancelled(run, tally, disruptions)
    if run.outcome == "lost":
        step = LOST.search(run.text)[1]
        # The names of calls begin with that of their step.
        was_called = any(re.split("[.-]", call.key)[0] == step for call in run.calls)
        tally.count("lost steps", "had been called" if was_called else "had not been called")
    if run.outcome == "timed out":
        # A replica of Restate waits for calls that another one has begun. A disruption can start
        # this wait again.
        tally.check(
            disruptions.store.moves_runs and run.kills,
            f"outcome: {run} timed out although its replica was not killed",
        )
    if run.outcome in ("lost", "not stored"):
        tally.check(
            disruptions.has_hit(run, run.outcome == "not stored"),
            f"outcome: {run} ended without a disruption: {run.text[:200]}",
        )


def check_used(run, tally, disruptions):
    """Checks that no step is called again after a later step has used its output.

    A replica of Restate may begin to execute a run late, after a partition, and then makes the first
    call that may be repeated. It cannot know that another replica has continued the run.
    """
    used = {}
    for call in run.calls:
        # A composite that another one calls starts again from its first step.
        if "-" in call.key:
            continue
        since = used.get(f"{run.number}/{call.key}", call.began)
        if call.began > since + DELAY:
            is_late = disruptions.store.moves_runs and call.tool not in shop.ONCE
            if is_late and disruptions.was_away(call.replica, since, call.began):
                tally.count("calls", "repeated by a replica after a partition")
            else:
                tally.fail(
                    f"calls: `{call.key}` of {run} was called again after its output was used"
                )
        for value in call.after:
            used.setdefault(value, call.began)


def check_cancelled(run, tally, disruptions):
    """Checks that a cancelled run makes no more calls after its bound."""
    limit = disruptions.store.cancel_bound
    for call in run.calls:
        # A finally step runs after the cancellation, and has a time of its own.
        bound = limit + SLACK + (composites.GRACE if call.key == "undo" else 0)
        # The replica that executes the run learns of the cancellation from the store.
        replica = None if disruptions.store.moves_runs else call.replica
        since = disruptions.quiet_after(replica, run.cancelled, limit)
        bound += since - run.cancelled
        began = call.began - run.cancelled
        ended = (call.ended or time.monotonic()) - run.cancelled
        tally.check(
            began <= bound,
            f"cancellation: {run} called `{call.key}` {began:.1f} s after its cancellation",
        )
        tally.check(
            ended <= bound,
            f"cancellation: {run} waited for `{call.key}` {ended:.1f} s after its cancellation",
        )
        if began > 0 and call.key != "undo":
            tally.count("calls of cancelled runs", "began after the cancellation")
