"""The outcomes of a load test, and what it found."""

import collections
import re
import time

# The maximum number of different failures that are printed.
PRINTED = 40

# What differs between failures of the same kind.
VARIES = re.compile(r"marker-[\w-]+|(?:of|to) [a-z]+:|[0-9]+")


class Tally:
    """Counts outcomes by group and kind, and collects failures and durations."""

    def __init__(self):
        self.counts = collections.Counter()
        self.failure_count = 0
        # The first failure of each kind, and the number of such failures.
        self.failures = {}
        self.durations = []
        self.start = time.monotonic()

    def count(self, group, kind):
        self.counts[group, kind] += 1

    def fail(self, text):
        self.failure_count += 1
        seconds = time.monotonic() - self.start
        first, count = self.failures.get(VARIES.sub("", text), (f"at {seconds:.1f} s: {text}", 0))
        self.failures[VARIES.sub("", text)] = first, count + 1

    def check(self, is_met, text):
        """Adds a failure unless a condition is met."""
        if not is_met:
            self.fail(text)

    def total(self, group, *kinds):
        """Returns the number of outcomes of a group, or those of some kinds."""
        return sum(
            number
            for (of, kind), number in self.counts.items()
            if of == group and (not kinds or kind in kinds)
        )

    def percentile(self, percent):
        """Returns a percentile of the durations of calls in milliseconds."""
        if not self.durations:
            return 0
        ordered = sorted(self.durations)
        index = min(len(ordered) - 1, int(len(ordered) * percent / 100))
        return ordered[index] * 1000

    def print_counts(self):
        groups = collections.defaultdict(list)
        for (group, kind), number in sorted(self.counts.items()):
            groups[group].append(f"{kind} {number}")
        width = max(map(len, groups), default=0)
        for group, kinds in groups.items():
            print(f"  {group:{width}}  {', '.join(kinds)}")

    def print_failures(self):
        for first, count in list(self.failures.values())[:PRINTED]:
            print(f"FAILED {first}" + (f" ({count} times)" if count > 1 else ""))
        if len(self.failures) > PRINTED:
            print(f"FAILED in {len(self.failures) - PRINTED} other ways")
