"""Three tenants share one model, and one of them bursts: without Tidegate, and twice with it.

`make demo` sets everything up and runs the demo.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import capacity
import load_plan as plans
import page
import server as servers
import standalone_svg
import table
from figures import POST, rows
from progress import Progress
from traffic import PHASES, Phase, run_phase

if TYPE_CHECKING:
    from load_plan import Plan
    from server import Server

#: Share of one core above which the client itself may distort the figures.
BUSY = 0.5


def main() -> int:
    """Runs the demo.

    Returns the exit status: 2 if the user does not confirm the run, otherwise 0.
    """
    args = arguments()
    named = servers.server_from_environment()
    if named:
        announce_real_run(args.load, named)
        if not confirmed(yes=args.yes):
            return 2
        found = asyncio.run(capacity.measure(named))
        plan = plans.real(found, args.load)
        describe_real_run(plan, found)
    else:
        plan = plans.simulated(args.time_scale)
        describe_simulated_run(plan)
    with contextlib.ExitStack() as stack:
        simulator = functools.partial(servers.simulator, args.tidegate, plan, workers=1)
        of_phases = [named or stack.enter_context(simulator()) for _ in PHASES]
        phases = run_phases(plan, of_phases)
    report(plan, phases, Path(args.out), simulated=named is None)
    return 0


def arguments() -> argparse.Namespace:
    """Returns the parsed command-line arguments."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--tidegate", default="tidegate", help="the command whose `sim` serves the model")
    parser.add_argument("--time-scale", type=float, default=1.0, help="seconds of the post in a second (simulator)")
    parser.add_argument("--load", type=float, default=1.0, help="times the default load (a server of yours)")
    parser.add_argument("--yes", action="store_true", help="send to a server of yours without asking; so does YES=1")
    parser.add_argument("--out", default="out", help="folder for demo.html and demo.json")
    return parser.parse_args()


def describe_simulated_run(plan: Plan) -> None:
    """Prints what the simulated run does, and how its load compares with the blog post's."""
    a, b, c = plan.tenants
    caps = f"{a.cap}/{b.cap}/{c.cap}"
    print(f"""\
Three tenants share one vLLM, simulated behind a real HTTP server, called by the official openai client. The three
phases run at the same time, each with a simulator and clients of its own.
  A and C send {a.per_second:g} and {c.per_second:g} calls a second for {a.end:.0f} s.
  B bursts: {b.calls} calls at {b.per_second:g} a second, from {b.start:.0f} s on.
  off:   the client as it is.
  caps:  gate.wrap(client), caps {caps}; a call waits up to {plan.wait:g} s and then fails with 504.
  names: the same wait, and nothing else is configured but the tenants' names.
Scaled against the post: half of its load (calls, rates and caps) on one of its two workers{plan.speed}. Prompts
({plan.prompt_tokens} tokens), answers ({plan.output_tokens}), the engine and its step times are the post's, so that
TTFT and decode compare as they are; calls and peaks are half. All times below are on the post's clock.
""")


def announce_real_run(load: float, server: Server) -> None:
    """Prints how many calls and tokens the run on a real server uses at most."""
    calls = len(PHASES) * plans.max_real_calls(load) + capacity.BURST + 3
    tokens = calls * (plans.REAL_PROMPT_TOKENS + plans.REAL_OUTPUT_TOKENS)
    print(f"""\
This calls the model {server.model} at {server.base_url}:
  first {capacity.BURST} calls at once, to measure how many the server serves at the same time; then the same calls
  three times, by the client as it is and twice through Tidegate. The more the server serves, the more calls.
  At most {calls} calls, each a prompt of about {plans.REAL_PROMPT_TOKENS} tokens and an answer of at most
  {plans.REAL_OUTPUT_TOKENS}: {tokens:,} tokens in all at most. --load scales the calls.
  Failed calls may be tried again, up to 2 times by the client, up to 3 times by Tidegate.
""")


def describe_real_run(plan: Plan, found: capacity.Capacity) -> None:
    """Prints what was measured, and the load and the caps that follow from it."""
    a, b, c = plan.tenants
    more = " or more" if found.slots >= capacity.BURST else ""
    print(f"""\
The server serves {found.slots} calls at once{more}, and each takes {found.seconds:.1f} s.
  A and C send {a.calls} and {c.calls} calls, {a.per_second:.2g} and {c.per_second:.2g} a second.
  B bursts: {b.calls} calls at {b.per_second:.2g} a second, from {b.start:.0f} s on.
  off:   the client as it is.
  caps:  gate.wrap(client), caps {a.cap}/{b.cap}/{c.cap}, {plan.cap} in all;
         a call waits up to {plan.wait:g} s and then fails with 504.
  names: the same wait, and nothing else is configured but the tenants' names.
""")


def confirmed(*, yes: bool) -> bool:
    """Asks the user before calls are sent to a real server. Returns `True` if the user agrees.

    Does not ask, and returns `True`, if `yes` is true or the environment variable `YES` is 1.
    """
    if yes or os.environ.get("YES") == "1":
        return True
    if not sys.stdin.isatty():
        print("Nothing was sent. Run `make demo YES=1` to send the calls.", file=sys.stderr)
        return False
    return input("Send them? [y/N] ").strip().lower() in {"y", "yes"}


def run_phases(plan: Plan, of_phases: list[Server]) -> list[Phase]:
    """Runs the phases on their servers, each in a process of its own, and returns them.

    Phases with the same server run one after the other, others at the same time.
    """
    at_once = len(set(of_phases))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(at_once, context) as pool:
        messages, begin = manager.Queue(), manager.Barrier(at_once)
        viewer = threading.Thread(target=Progress().follow, args=(messages,))
        viewer.start()
        try:
            runs = [
                pool.submit(run_phase, plan, server, name, messages, begin)
                for name, server in zip(PHASES, of_phases, strict=True)
            ]
            return [run.result() for run in runs]
        finally:
            messages.put(None)
            viewer.join()


def report(plan: Plan, phases: list[Phase], out: Path, *, simulated: bool) -> None:
    """Prints the table of figures. Writes `demo.html`, `demo.json` and `demo.svg` into `out`."""
    here = {phase.name: rows(phase) for phase in phases}
    title = f"here, {plan.load:g} x load" if simulated else "here"
    groups = [(title, here), ("the post", POST)] if simulated else [(title, here)]
    print("\n" + table.text(groups) + "\n")
    for phase in phases:
        if phase.cpu.loop > BUSY:
            print(f"The client itself was busy ({phase.name}: {phase.cpu}); slow down: --time-scale, --load.")
    out.mkdir(parents=True, exist_ok=True)
    figures = {name: {tenant: row.json() for tenant, row in of.items()} for name, of in here.items()}
    cpu = {phase.name: {"mean": phase.cpu.mean, "busiest": phase.cpu.busiest} for phase in phases}
    (out / "demo.json").write_text(json.dumps({"figures": figures, "cpu": cpu}, indent=1) + "\n")
    html = out / "demo.html"
    html.write_text(page.render(plan, phases, groups), encoding="utf-8")
    (out / "demo.svg").write_text(standalone_svg.render(plan, phases), encoding="utf-8")
    print(f"{html}: every call's time to first token in each phase (the chart alone: {out / 'demo.svg'})")


if __name__ == "__main__":
    sys.exit(main())
