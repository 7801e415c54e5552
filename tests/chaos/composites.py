"""The composites of the chaos test, and the outputs that their runs must have.

A composite calls the tools of `backend.py`. Each call has the number of its run, the name of its
step, and the values of earlier steps. The value of a call is `RUN/STEP`, or `RUN/STEP.ELEMENT` in a
loop.
"""

import itertools
import json

# The elements of each `for_each`, and the iterations of each `repeat`.
ELEMENTS = 4

# The time of the finally step after a cancellation, in seconds.
GRACE = 5

LOOPS = ("for_each", "repeat")


def toml(value):
    """Formats a value as TOML in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def arguments(step, after=(), **more):
    values = [f"$steps.{name}.output.value" for name in after]
    return {"run": "$input.run", "step": step, "after": values} | more


def call(step, tool, after=(), more=(), **keys):
    """Returns a step that calls a tool of the backend with the values of the steps `after`."""
    tool = f"backend_{tool}"
    return {"id": step, "tool": tool, "arguments": arguments(step, after, **dict(more)), **keys}


def loop(step, tool, after, **keys):
    more = {"element": "$index"}
    return call(step, tool, after, more, type="for_each", collection="$input.items", **keys)


def question(step, after):
    schema = {"required": ["note"], "properties": {"note": {"type": "string"}}}
    message = "{{ input.run }}/" + step
    return {
        "id": step, "type": "elicitation", "message": message, "schema": schema,
        "depends_on": after,
    }


def answered(step, asked, after=()):
    """Returns a step that uses the answer to a question, and that calls its tool once."""
    return call(step, "work", after, {"answer": f"$steps.{asked}.output.content.note"})


def output(steps):
    """Returns the output block with the values of these steps, and of the elements of loops."""
    values = {}
    for step in steps:
        value = f"$steps.{step['id']}.output.value"
        if step.get("type") in LOOPS:
            elements = f"steps.{step['id']}.output.iterations"
            value = f"{{{{ {elements} | map(attribute='output.value') | list }}}}"
        values[step["id"]] = value
    property = {"type": "object", "description": "The values", "value": values}
    return {"properties": {"values": property}}


def composite(name, strategy, steps, **keys):
    """Returns a composite whose output has the values of all steps that call the backend."""
    called = [step for step in steps if step.get("tool", "").startswith("backend_")]
    called = [step for step in called if "finally" not in step]
    return {
        "name": name, "description": "A composite of the chaos test", "strategy": strategy,
        "input_schema": {"type": "object"}, "task": "always", "steps": steps,
        "output": output(called), **keys,
    }


def chain(name, count, *tools, **keys):
    """Returns a pipeline in which each step uses the value of the previous one."""
    tools = itertools.cycle(tools)
    names = [f"s{number}" for number in range(count)]
    steps = [
        call(step, next(tools), names[number - 1:number] if number else (), **keys)
        for number, step in enumerate(names)
    ]
    return composite(name, "pipeline", steps)


def wide():
    first = [f"a{number}" for number in range(6)]
    second = [f"b{number}" for number in range(6)]
    tools = ["work", "read", "put"]
    steps = [call(name, tools[number % 3]) for number, name in enumerate(first)]
    steps.append(call("middle", "work", first))
    steps += [call(name, tools[number % 3], ["middle"]) for number, name in enumerate(second)]
    steps.append(call("last", "put", second))
    return composite("wide", "workflow", steps, max_parallel=4)


def loops():
    again = {"type": "repeat", "until": f"last.element >= {ELEMENTS - 1}"}
    steps = [
        call("first", "work"),
        loop("each", "work", ["first"], max_parallel=2),
        loop("lines", "put", ["first"], max_parallel=1),
        loop("reads", "read", ["first"], max_parallel=3),
        call("again", "work", ["first"], {"element": "$index"}, **again),
        call("last", "work", ["first"], depends_on=["each", "lines", "reads", "again"]),
    ]
    return composite("loops", "workflow", steps)


def inner(name, tool, **keys):
    """Returns a composite that others call, with three steps."""
    names = ["x", "y", "z"]
    steps = [call(step, tool, names[:number][-1:]) for number, step in enumerate(names)]
    for step in steps:
        step["arguments"]["step"] = f"{{{{ input.outer }}}}-{step['id']}"
    return composite(name, "pipeline", steps, task="never", **keys)


def nested():
    def call_of(step, tool, after):
        values = arguments(step, [after])
        inputs = {"run": "$input.run", "outer": step, "after": values["after"]}
        return {"id": step, "tool": tool, "arguments": inputs}

    steps = [
        call("first", "work"),
        call_of("puts", "inner_put", "first"),
        call("second", "read", ["first"], depends_on=["puts"]),
        call_of("works", "inner_work", "second"),
        call("last", "put", ["first", "second"], depends_on=["works"]),
    ]
    return composite("nested", "workflow", steps)


def questions():
    steps = [
        call("first", "work"),
        question("sure", ["first"]),
        call("beside", "put", ["first"]),
        answered("second", "sure", ["first", "beside"]),
        question("really", ["second"]),
        answered("third", "really", ["second"]),
        call("last", "read", ["third"]),
    ]
    return composite("questions", "workflow", steps)


def tolerant():
    """Returns a composite whose runs complete even if the outcome of a step is lost."""
    keys = {"on_error": "continue", "default_results": {"value": "lost"}}
    names = [f"s{number}" for number in range(6)]
    steps = [
        call(step, "work", names[number - 1:number] if number else (), **keys)
        for number, step in enumerate(names)
    ]
    steps.append(call("last", "put", names))
    return composite("tolerant", "workflow", steps)


def careful():
    """Returns a composite whose runs do not end by themselves, and which clients cancel."""
    undo = call("undo", "work", **{"finally": {"on_cancel": True, "grace": f"{GRACE}s"}})
    steps = [
        call("first", "work"),
        call("second", "put", ["first"]),
        call("endless", "slow", ["second"]),
        call("last", "work", ["endless"]),
        undo,
    ]
    return composite("careful", "workflow", steps)


def fan():
    names = [f"t{number}" for number in range(6)]
    targets = [
        {"id": name, "tool": "backend_work", "arguments": arguments(name)} for name in names
    ]
    return {
        "name": "fan", "description": "A composite of the chaos test", "targets": targets,
        "input_schema": {"type": "object"}, "task": "always",
    }


# The composites that clients call.
COMPOSITES = [
    chain("short", 5, "work"),
    chain("mixed", 12, "work", "read", "put"),
    chain("long", 20, "put", "work", "read", "put"),
    chain("idempotent", 10, "put", "read"),
    chain("repeatable", 8, "again", retry_lost=True),
    wide(),
    loops(),
    nested(),
    questions(),
    tolerant(),
    fan(),
    careful(),
]
INNER = [
    inner("inner_put", "put", annotations={"idempotentHint": True}),
    inner("inner_work", "work"),
]


def configuration(composites, store):
    """Returns the file of the replicas with these composites, and with the sections of a store."""
    sections = ["[[backends]]\nname = 'backend'\nurl = '${BACKEND_URL}'\ntimeout = '120s'", *store]
    sections += [
        "[[composite_tools]]\n" + "\n".join(f"{key} = {toml(value)}" for key, value in each.items())
        for each in composites
    ]
    return "\n\n".join(sections) + "\n"


def calls(name):
    """Returns the number of calls of a complete run of a composite."""
    counts = {"wide": 14, "loops": 2 + 4 * ELEMENTS, "nested": 9, "fan": 6, "careful": 3}
    if name in counts:
        return counts[name]
    steps = next(each["steps"] for each in COMPOSITES if each["name"] == name)
    return sum("tool" in step for step in steps)


def values(name, run):
    """Returns the output of a complete run of a composite, or nothing if it has no output block."""
    each = next(each for each in COMPOSITES if each["name"] == name)
    if "output" not in each:
        return None
    is_loop = {step["id"]: step.get("type") in LOOPS for step in each["steps"]}
    return {
        step: [f"{run}/{step}.{element}" for element in range(ELEMENTS)]
        if is_loop[step] else f"{run}/{step}"
        for step in each["output"]["properties"]["values"]["value"]
    }
