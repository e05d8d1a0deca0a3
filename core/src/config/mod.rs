//! Configuration: one set of keys for the TOML file, the builder, and dicts or JSON from the bindings.
//!
//! A key that does not exist, a value out of range, or settings that cannot both hold are errors that name the full key, what
//! was given, what is allowed and the nearest valid key, all of them at once. Nothing is ever ignored, and no error repeats a
//! value that may be a credential.
//!
//! ```toml
//! mode = "enforce"
//!
//! [defaults]                       # every target, also those that nobody configured
//! deadline = "5m"
//!
//! [tenants]                        # every target
//! acme = { weight = 2 }
//!
//! [targets]
//! anthropic = 32                   # a well-known provider: just its cap, which is its limit then
//!
//! [targets.openai]
//! cap = 64
//! ttft = "2s"                      # the limit adapts to it, up to the cap
//! wait = "1s"
//! rpm = 10_000
//! tpm = "2M"
//! tenants.batch = { cap = 8, tpm = "500k" }
//! lanes.interactive = { floor = 0.25 }
//! fallback = "spare"
//!
//! [targets.spare]                  # takes what openai refuses
//! url = "https://spare.example/v1"
//! model = "gpt-oss-120b"
//! key_env = "SPARE_API_KEY"
//!
//! [targets.llama]                  # a pool, called at http://llama/v1
//! ttft = "2s"
//! pool = { replicas = ["http://10.0.0.1:8000", "http://10.0.0.2:8000"], cap = 128 }
//!
//! [tools]
//! db = 8
//! search = { cap = 4, wait = "5s", rps = 10 }
//! index = { cap = 32, latency = "200ms" }
//! ```
//!
//! A configuration file is a regular file of at most 16 MiB. `tidegate check -` reads standard
//! input instead.
//!
//! # Values
//!
//! - A **duration** is a string with units (`"500ms"`, `"30s"`, `"2m"`, `"1h30m"`) or a number of seconds (`30`, `0.5`), from
//!   1 ms to 30 days. Where a table says *none*, `false`, `"none"` and JSON's `null` switch it off.
//! - A **rate** or another number of tokens or requests is a whole number, or a string in thousands or millions (`"450k"`,
//!   `"1.5M"`). Those of tokens go from 1 to 10^12, those of requests to 10^9; *none* is as for durations.
//! - A **share** is a number from 0 to 1.
//! - A **name** (of a target, tenant, budget or tool) has 1 to 200 bytes and no control characters.
//!
//! # Top level
//!
//! | key | what | default |
//! |---|---|---|
//! | `mode` | `"enforce"`, `"observe"` (measures, changes nothing) or `"off"`; `TIDEGATE` in the environment overrides it | `"enforce"` |
//! | `defaults` | the settings of a target, for every target that does not say otherwise and for those that nobody configured | |
//! | `targets.NAME` | a target, or just its cap; **the first that matches a request takes it**, in the order of the file | |
//! | `tenants.ID` | a tenant, in every target; `defaults.tenants.ID` goes over it key by key, and `targets.NAME.tenants.ID` over both | |
//! | `budgets.NAME` | rates that several targets share: those that name it as their `budget` | |
//! | `tools.NAME` | a tool, or just its cap | |
//! | `transport` | connections | |
//!
//! # Targets
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `url` | a base URL or a list of them; a path takes all below it | http or https; no user, query or `*` | see below |
//! | `models` | a model or a list of them; `*` is any run of characters | 1 to 200 bytes each | every model |
//! | `pool` | its replicas: see [Pools](#pools) | | none: it is one endpoint |
//! | `cap` | the most slots: the limit itself where that is fixed, its ceiling where it adapts (see [Limits](#limits)) | 1 to 65536 | 256; of a pool, 65536 |
//! | `limit` | how many of them are in force: see [Limits](#limits) | | adaptive; fixed where there is a `cap` and no `ttft`, here or of a lane |
//! | `queue` | the most calls that wait, per tenant | 0 to 1000000 | 10000 |
//! | `backlog` | the most calls that wait, of all tenants together | 0 to 1000000 | 100000 |
//! | `wait` | the longest a call waits while the target is open, all its attempts together | up to `deadline` | none |
//! | `on_full` | `"wait"` in the queue (then 504), or `"refuse"` at once (429) | | `"wait"` |
//! | `deadline` | the longest a whole call takes, waiting, retries and stream included | | 600 s, or the client's own read timeout if longer |
//! | `first_token` | the longest from sending an attempt that streams to its first token | up to `deadline` | the client's own read timeout |
//! | `idle` | the longest silence between chunks | | the client's own read timeout |
//! | `stall` | how long a reader may leave a chunk unasked-for | | 300 s |
//! | `ttft` | the objective for the time to first token, queue wait included; the adaptive limit keeps to it | up to `deadline` | none |
//! | `tpot` | the objective for the time between two tokens, on average over a call; of an adaptive limit only | up to `deadline` | none |
//! | `aging` | how much waiting raises a lane by one: it then goes before that one for an eighth of the capacity | | 30 s |
//! | `retry.attempts` | the most attempts of a call, the first included | 1 to 100 | 4 |
//! | `retry.base` | the first backoff's upper bound; doubles each time | up to `retry.max` | 500 ms |
//! | `retry.max` | the longest backoff | | 30 s |
//! | `retry.ratio` | retries earned per recent call | 0 to 10 | 0.2 |
//! | `retry.reserve` | retries that need not be earned | 0 to 10000 | 10 |
//! | `max_prompt` | the longest prompt, in estimated tokens; a longer one is refused at once (413) | tokens | none |
//! | `predict` | refuse at once what would wait too long: `"deadline"` (for its deadline or wait budget), `"objective"` (for its `ttft` too), `"off"` | | `"deadline"` |
//! | `cost` | what fair queueing charges: `"tokens"`, `"kv"` (tokens held times seconds), `"calls"`, or `"auto"` (`kv` for pools and where `kv_tokens` is configured, else `tokens`) | | `"auto"` |
//! | `short_bias` | by how much later a call of 1000 tokens stands in its own tenant's queue | a duration | none |
//! | `reclaim` | call back what was lent another's floor and has no answer yet, when the other wants it | | false |
//! | `kv_tokens` | tokens that the engine's memory for keys and values holds; of a pool, each replica's. Calls that begin alike count their common beginning once at replicas that report prefix caching, and each in full at other targets | tokens | not known: not bounded; replicas are asked |
//! | `kv_headroom` | the share of it that is kept free | 0 to 0.9 | 0.1 |
//! | `tokenizer` | how prompts are counted: `"learned"` (by their length, and what the provider counted), `"bpe"` (exactly, as OpenAI's models do; builds with the feature `bpe`), `"vllm"` (by asking the server) | | `"learned"` |
//! | `ask_usage` | ask streams for their usage where the caller did not, and do not show it to the caller | | false |
//! | `budget` | the budget of `[budgets]` that its rates are part of; beside rates of its own it is an error | | its own [rates](#rates) |
//! | `fallback` | the target that takes what this one refuses; it needs one base URL (or all of ours), and a `model` (or all of ours in its `models`) | | none |
//! | `model` | the model that calls ask for which fall back to this target | one of its `models` | the only name in `models` |
//! | `key_env` | the environment variable with the credential of calls that fall back to this target; never the credential itself | | none: the caller's own goes along where protocol, host and port are the same, and nowhere else, unless `forward_headers` names its header |
//! | `forward_headers` | headers of the caller that this target receives from calls that fall back to it, a name or a list of names: see [Fallbacks](#fallbacks) | names of request headers; no `*` | none |
//! | `lanes.LANE` | what a [lane](#lanes) has to itself | | |
//! | `tenants.ID` | a named tenant's share | | |
//! | `default_tenant` | the share of each tenant that is not named (named ones do not inherit from it) | | |
//!
//! The floors of the tenants and lanes of one target sum to 1 at most. `url`, `models`, `model`, `key_env`, `forward_headers` and `pool` have no place in
//! `defaults`; a `fallback` there does not hold for the target that it names.
//!
//! Without a `url`, a target called `openai`, `anthropic`, `gemini`, `groq`, `mistral`, `together`, `fireworks`, `openrouter` or
//! `deepseek` has that provider's, and a pool those that [Pools](#pools) tells; any other matches by its `models` alone. One with neither matches everything, which is
//! allowed only where it is the gate's sole target. How URLs and models are compared: [`Matcher`]. A target that could never
//! be reached, because one above it takes all of its requests and none falls back to it, is an error; one with `url = "none"` takes no request, and its slots are
//! held by name (`Gate::acquire_slot`). (In TOML the plain keys of a table come before its
//! sub-tables: to put a narrow target above `openai = 64`, write that one as `[targets.openai]` too, below the narrow one.)
//!
//! # Fallbacks
//!
//! A call that falls back to a target on the same server (protocol, host and port) keeps all
//! headers and query parameters, unless that target has a `key_env`; only the URL and the model
//! change. On another server, at a pool, and with the key of `key_env`, it keeps only these parts:
//!
//! - The headers `accept`, `accept-encoding`, `accept-language`, `anthropic-beta`,
//!   `anthropic-version`, `content-encoding`, `content-length`, `content-type`, `idempotency-key`,
//!   `openai-beta`, `traceparent`, `user-agent`, `x-client-request-id`, `x-goog-api-client`,
//!   `x-ms-client-request-id`, `x-ms-useragent`, `x-request-id`, `x-server-timeout` and
//!   `x-stainless-*`.
//! - The headers that the receiving target names in `forward_headers`. The setting belongs to the
//!   receiving target, because that target is trusted with the headers. Credentials may be named
//!   too (`forward_headers = ["authorization"]` sends the caller's key to that server); the header
//!   that holds the key of `key_env` is always the target's own.
//! - The query parameters `api-version`, `alt` and `beta`. No other can be named.
//! - The body, and the part of the path below the base URL. A key in either goes along: a key in
//!   the path belongs in the target's `url`.
//!
//! # Limits
//!
//! How many slots of the `cap` are in force: `limit = "adaptive"`, `limit = "fixed"` (all of them, always) or a table with the
//! settings of an adaptive one, each key of which may be left out. Of a target, of `defaults`, or of a tool.
//!
//! **Without a `limit` it adapts, unless a `cap` is named and no objective is (`ttft`, also of a lane; a tool's `latency`): then it is fixed at
//! that cap.** So `openai = 64` and `{ cap = 64 }` are 64 slots; `{ cap = 64, ttft = "2s" }` is as many as keep to two seconds, and 64 at most;
//! a target that says nothing finds its limit itself, up to 256. What `defaults` say counts as if the target said it. Slots of a target
//! with `url = "none"` are held by hand, from which nothing is learned: there it is fixed.
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `limit.start` | slots at the start; it doubles from there until the first cut, and under a percentile rises by one a tick | `min` to `cap` | 8, or the nearest within those |
//! | `limit.min` | the floor | 1 to `cap` | 1 |
//! | `limit.awaiting` | the most calls that may await their first token at once; above the cap it has no effect; not of a tool | 1 to 65536 | found as well, with `decrease = "served"`; else not bounded |
//! | `limit.decrease` | how far a cut for late calls goes: `"served"` (to what the upstream is seen to serve at once), or to a share of what it was (`0.9`) | 0.1 to 0.99 | `"served"` |
//! | `limit.decrease.step` | in place of those: by how many slots such a cut lowers it (`decrease = { step = 4 }`) | 1 to 65536 | |
//! | `limit.detector` | what takes first tokens for too late: `"exceedance"` (a sequential test of the share of calls above the objective, by kind of call), `"percentile"` (over a window), or a table with settings of the latter | | `"exceedance"` |
//! | `limit.detector.quantile` | which percentile | 0.01 to 0.999 | 0.99 |
//! | `limit.detector.window` | what it is taken over | 1 s to 1 h | 30 s |
//! | `limit.detector.tick` | how often it is looked at | 100 ms to 10 min, up to `window` | 5 s |
//! | `limit.detector.band` | the dead band on either side of the objective, as a share of it | 0 to 0.9 | 0.2 |
//! | `limit.detector.hold` | ticks that pass after a cut before the next | 0 to 1000 | 3 |
//!
//! The limit judges upstream TTFT, from sending to the first token. What it keeps to is the strictest `ttft` of the target and its lanes, less the
//! `wait` there, which is the queue's part: half of the `ttft` at most, half of it where there is no `wait`, and nothing where `on_full` is `"refuse"`.
//! Calls that do not stream have no first token: they are judged from sending to their end, against three times what calls of their kind take when
//! there is room; so are all where there is no objective. Calls of a tool are judged from beginning to end, against its `latency`.
//!
//! `decrease` is of cuts for late calls alone. Whatever it says, 429s that are not for a rate cut to what was taken in, and 503s, 529s, timeouts and
//! a `tpot` that is missed cut by a tenth.
//!
//! Under a percentile there is no slow start, and the evidence of a breach in snapshots is the quantile over the objective with its band: at 1 it cuts.
//!
//! What `defaults` say of `start`, `min` and `tpot` gives way to what a target says itself: a `start` or `min` is moved to the nearest that the
//! target's own words allow, and a `tpot` counts where the limit adapts.
//!
//! **Of a pool a limit is each replica's**, up to the pool's own `cap`, and that `cap` takes the place of the target's in the rule above: it is fixed where
//! `pool.cap` is named and no objective is. The pool has as many slots as its replicas that calls may go to now have together; the target's `cap` bounds that sum,
//! and fixes nothing.
//!
//! # Pools
//!
//! `pool` of a target: replicas that serve the same, each called at its own address. A table, or just a list of `replicas`. Clients are pointed at the pool's name:
//! without a `url`, a target `llama` takes requests to `http://llama`, whatever their path, and to the address of each replica listed, or the name that is looked up;
//! no such host need exist. Where nothing names replicas, `Gate::set_replicas` does. A pool has 128 at most; of more that a file or DNS
//! names the first 128 are taken.
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `replicas` | base URLs, with `/v1` or without, or tables with one | 1 to 128 | |
//! | `replicas.url` | a replica's base URL | http or https | |
//! | `replicas.weight` | its share of the calls, beside the others' | 0.01 to 100 | 1 |
//! | `replicas.models` | the model that it serves, or a list of them; whole names | 1 to 200 bytes each | it is asked (`/v1/models`) |
//! | `replicas.kv_tokens` | tokens that its memory for keys and values holds | tokens | the target's; else it is asked |
//! | `dns` | in place of `replicas`: `http`, a host, each address of which is a replica, and the port | | |
//! | `dns_every` | how often it is looked up, while calls come; an answer that fails changes nothing | 1 s to 1 h | 5 s |
//! | `file` | in place of `replicas`: a file that names them, in TOML or JSON (`replicas`, as here), or one URL a line: a regular file of 1 MiB at most; one that cannot be read changes nothing | | |
//! | `file_every` | how often it is looked at, while calls come | 100 ms to 1 h | 1 s |
//! | `cap` | the most slots of each replica | 1 to 65536 | 256 |
//! | `health` | the path that is asked whether a replica is well; any answer but a 5xx says so; *none*: what calls meet there is all that is known | | `"/health"` |
//! | `poll` | how often a replica is asked how it stands (`/metrics`), while calls go to it; *none* | 50 ms to 1 min | 1 s |
//! | `down_after` | after how long without a good answer a silent replica counts as down, and what it has not begun to answer goes elsewhere | 100 ms to 5 min | 2 s |
//! | `cut_after` | for how long a stream of a replica that is down may be silent before it is cut | 100 ms to 1 h | 10 s |
//! | `slow_start` | the time in which a replica that comes, or comes back, is brought to its whole share; *none*: at once | 1 ms to 1 h | 10 s |
//! | `session` | the request header that names a session, whose calls go to one replica, within bounds; *none* | | `"x-session-id"` |
//! | `affinity` | whether calls with the same beginning go to one replica, within bounds | | true |
//! | `hedge` | after how long without a first token a call is tried at another replica as well, inside the retry budget: streams only, in mode `enforce`, and never of a client that keeps its own transport | 50ms to 5m | none |
//! | `key_env` | the environment variable with the key that `/v1/models` is asked with; calls bring their own | | none |
//!
//! # Rates
//!
//! Of a target, of `defaults`, or of a budget that several targets share. What is not set is not bounded until a response's
//! headers speak of it.
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `rpm`, `rpd` | requests a minute, a day | requests | none |
//! | `tpm`, `tpd` | tokens a minute, a day, input and output together | tokens | none |
//! | `itpm`, `otpm` | input tokens, output tokens a minute, where they are counted apart | tokens | none |
//! | `burst` | how much of a rate may go out at once, as time | 100 ms to 60 s | 6 s: a tenth of a minute's |
//! | `counting` | how the provider counts a call: `"sum"` (input and the most output allowed, at arrival), `"larger"` (the larger of the two), `"actual"` (input at arrival, output as it is produced), `"input"` (that alone), `"auto"` (by its dialect, and what its headers show) | | `"auto"` |
//! | `headers` | what its rate headers may do: `"follow"` (set the rates), `"lower"` (only lower them), `"ignore"` | | `"follow"` |
//!
//! # Lanes
//!
//! `lanes.interactive`, `lanes.standard` and `lanes.batch`, of a target or of `defaults`.
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `floor` | the share of the slots in force that is its own whenever it wants them; lent while it does not | a share | 0 |
//! | `queue` | the most of its calls that wait, of all tenants together | 0 to 1000000 | none |
//! | `wait` | the wait budget of its calls | up to `deadline` | the target's |
//! | `ttft` | its objective for the time to first token | up to `deadline` | the target's |
//!
//! # Tenants
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `weight` | its weight in fair queueing | 0.001 to 1000000 | 1 |
//! | `cap` | the most slots it holds; above the target's it has no effect | 1 to 65536 | none |
//! | `queue` | the most of its calls that wait | 0 to 1000000 | the target's |
//! | `floor` | the share of the slots in force that is its own whenever it wants them; not of a `default_tenant` | a share | 0 |
//! | `tpm` | tokens it may take a minute; what it takes beyond them is owed, and kept back later | tokens | none |
//! | `shed` | whether its waiting calls may be refused to make room for more urgent ones | | true |
//!
//! # Tools
//!
//! `cap` (no default), `queue`, `wait` and `on_full`, as for targets; `wait` has no place beside `on_full = "refuse"`.
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `limit` | how many slots are in force: see [Limits](#limits) | | fixed; adaptive where there is a `latency` |
//! | `latency` | the objective for how long a call takes; of an adaptive limit only | a duration | none |
//! | `rps` | calls a second | 0.001 to 1000000 | none |
//! | `rpm` | calls a minute, in place of `rps` | requests | none |
//!
//! # Transport
//!
//! | key | what | range | default |
//! |---|---|---|---|
//! | `connect` | the longest a connection takes to open | | 10 s |
//! | `proxy_from_env` | proxies from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, in Python by the rules of httpx or httpx2, in Node by those of undici, else by those of the core | | true |
//! | `pool_idle` | idle connections kept per host | 0 to 65536 | 256 |
//! | `pool_idle_timeout` | how long an idle connection is kept | | 90 s |
//! | `http2_streams` | streams on one HTTP/2 connection before another is opened | 1 to 10000 | 90 |
//! | `http2_prior_knowledge` | HTTP/2 without TLS to `http://` URLs | | false |

mod builder;
mod error;
mod keywords;
mod lane;
mod limit;
mod matching;
mod model;
mod parse;
mod pool;
mod providers;
#[cfg(test)]
mod tests;

pub use builder::{
    Budget, ConfigBuilder, LaneSettings, LimitSettings, Pool, Replica, Retry, Target, Tenant, Tool, Transport,
};
pub use error::{ConfigError, ConfigProblem};
pub use lane::Lane;
pub use limit::{AdaptiveConfig, Decrease, Detector, LimitConfig, Percentile};
pub use matching::Matcher;
pub use model::{
    Config, CostRule, Counting, DEFAULT_DEADLINE, HeaderPolicy, LaneConfig, Mode, OnFull, Predict,
    RateConfig, RetryConfig, TargetConfig, TargetMatch, TenantConfig, Tokenizer, ToolConfig, TransportConfig,
};
pub use parse::{describe_text, replicas_from_json, replicas_in_file};
pub use pool::{MAX_REPLICAS, PoolConfig, ReplicaConfig, ReplicaSource};

impl Config {
    /// Reads a configuration from TOML.
    ///
    /// # Errors
    /// Every problem found, each with its line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parse::from_toml(text)
    }

    /// Reads a configuration from JSON, which the bindings make of a dict or an object. The order
    /// of the targets counts.
    ///
    /// # Errors
    /// Every problem found, without lines.
    pub fn from_json(value: serde_json::Value) -> Result<Self, ConfigError> {
        parse::from_json(&value)
    }
}
