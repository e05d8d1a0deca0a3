"""The projects whose tests `run.py` runs, and how they are installed and run."""

from __future__ import annotations

from typing import NamedTuple

# A busy machine needs more than the default of 5 s.
_TIMEOUT = "--testTimeout=60000"
# Puts the fetches that the clients were given below gates.
_KEEP_JEST = ("--setupFilesAfterEnv={here}/setup_client.cjs",)
_KEEP_VITEST = ("--root=.", "--config={place}/vitest.config.mts")
# A call whose mock never answers keeps the process alive until the deadline of the gate, 600 s.
_JEST = ("node_modules/.bin/jest", "--runInBand", "--forceExit", _TIMEOUT, "--json", "--outputFile={report}")
_VITEST = ("node_modules/.bin/vitest", "run", _TIMEOUT, "--reporter=json")
_NODE_TEST = (
    "node",
    "--expose-gc",
    "--test",
    "--test-concurrency=1",
    "--test-timeout=30000",
    "--test-reporter=junit",
    "--test-reporter-destination={report}",
)
_PNPM = ("pnpm", "install", "--silent", "--frozen-lockfile", "--ignore-scripts")


class Suite(NamedTuple):
    """Tests that one command runs.

    Attributes:
        command: The command. `{report}` stands for the path of its report.
        keep: Further arguments in the runs `keep-*`. `{here}` stands for this directory, and
            `{place}` for `.suite` in the checkout.
        mocked: `True` if the tests call the mock server.
        client: The module of the SDK's client class; None if the tests are not those of an SDK.
        files: The test files, as a glob pattern; None if the command finds them itself.
        folder: The folder of the checkout in which the command runs.
        junit: `True` if the report is JUnit XML, `False` if it is the JSON of jest or vitest.
    """

    command: tuple[str, ...]
    keep: tuple[str, ...] = ()
    client: str | None = None
    mocked: bool = True
    files: str | None = None
    folder: str = "."
    junit: bool = False


class Project(NamedTuple):
    """A repository whose tests run over gates.

    Attributes:
        repository: The name on GitHub.
        node: The version of Node that runs the tests.
        setup: The file of this directory that replaces the fetch of the tests.
        suites: The suites by name.
        install: Commands that install and build what the suites need.
        mock: The package of the mock server, or None if the suites need none.
    """

    repository: str
    node: str
    setup: str
    suites: dict[str, Suite]
    install: tuple[tuple[str, ...], ...] = ()
    mock: str | None = None


PROJECTS = {
    "openai": Project(
        repository="openai/openai-node",
        node="24",
        setup="setup_global.cjs",
        suites={
            "generated": Suite(_JEST, _KEEP_JEST, "src/client.ts"),
            "hand-written": Suite((*_VITEST, "--outputFile={report}"), _KEEP_VITEST, "src/client.ts", mocked=False),
        },
        install=(_PNPM,),
        mock="@stdy/cli@0.22.1",
    ),
    "anthropic": Project(
        repository="anthropics/anthropic-sdk-typescript",
        node="24",
        setup="setup_global.cjs",
        suites={
            "sdk": Suite(_JEST, _KEEP_JEST, "src/client.ts"),
            **{
                name: Suite(_JEST, _KEEP_JEST, "dist/client.js", folder=f"packages/{name}-sdk")
                for name in ("vertex", "bedrock", "foundry", "aws", "google-cloud")
            },
        },
        install=(_PNPM, ("bash", "scripts/build")),
        mock="@stdy/cli@0.22.2",
    ),
    "undici": Project(
        repository="nodejs/undici",
        node="20",
        setup="setup_undici.cjs",
        suites={
            "node-fetch": Suite(_NODE_TEST, files="test/node-fetch/*.js", mocked=False, junit=True),
            "fetch": Suite(_NODE_TEST, files="test/fetch/*.js", mocked=False, junit=True),
        },
        install=(
            ("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"),
            ("node", "scripts/generate-pem.js"),
        ),
    ),
}
