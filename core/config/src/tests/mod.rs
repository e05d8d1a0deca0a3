//! Tests of the configuration as a whole. Invalid values are tested with the vectors in
//! `tests/vectors/config_errors.json`.

mod builder;
mod inheritance;
mod limits;
mod pool;
mod properties;
mod sizes_and_budgets;
// The test compares committed files; the crate itself does no I/O.
#[allow(clippy::disallowed_methods)]
mod reference;
mod share;

/// A file with every key except those of pools, each with a value other than its default.
const FULL: &str = r#"
mode = "observe"

[defaults]
queue = 500
deadline = "5m"
idle = "1m"
retry = { attempts = 3, ratio = 0.1 }
default_tenant = { cap = 6 }
tenants.acme = { cap = 20 }
lanes.batch = { queue = 400, wait = "2m" }
budget = "account"
fallback = "llama"

[tenants]
acme = { weight = 2, queue = 7, floor = 0.2, tpm = "250k" }
batch = { weight = 0.5, shed = false }

[budgets.account]
rpm = 500
rpd = 10_000
tpm = "2M"
tpd = 1_000_000_000
itpm = "450k"
otpm = "1.5M"
burst = "2s"
counting = "actual"
headers = "lower"

[targets]
anthropic = 32

[targets.openai]
models = ["gpt-4o*", "o3"]
cap = 48
queue = 1_000
wait = "30s"
on_full = "refuse"
deadline = "1h30m"
first_token = 45
idle = false
stall = "none"
ttft = 2.5
tpot = "80ms"
limit = { start = 12, min = 2, awaiting = 6, decrease = 0.8, detector = { quantile = 0.95, window = "1m", tick = "2s", band = 0.1, hold = 4 } }
aging = "10s"
retry = { attempts = 5, base = "250ms", max = "20s", ratio = 0.3, reserve = 4 }
default_tenant = { weight = 3, queue = 9, tpm = 90_000, shed = false }
tenants.acme = { weight = 4 }
tenants.beta = { cap = 1, floor = 0.1 }
lanes.interactive = { floor = 0.5, ttft = "1s" }
lanes.batch = { wait = "none" }
backlog = 20_000
cost = "tokens"
short_bias = "200ms"
reclaim = true
predict = "objective"
max_prompt = 200_000
budget = "none"
rpm = 600
tpm = "1M"
burst = 1
counting = "sum"
headers = "ignore"
ask_usage = true
fallback = "spare"

[targets.llama]
url = "http://10.0.0.1:8000/v1/"
models = "llama-3-70b"
fallback = false
budget = false
kv_tokens = 400_000
kv_headroom = 0.2
limit = { decrease = { step = 3 } }
cost = "kv"
tokenizer = "vllm"
predict = "off"

[targets.spare]
url = ["HTTP://10.0.0.2:80"]
limit = "fixed"
model = "mixtral"
key_env = "SPARE_KEY"
forward_headers = ["x-tenant-id", "X-Team"]

[tools]
db = 8
search = { cap = 4, queue = 16, wait = "5s", rpm = 90, latency = "200ms" }
shell = { cap = 1, on_full = "refuse", rps = 0.5, limit = { detector = "percentile" } }

[share]
store = "off"
name = "web_1"
strict = true

[transport]
connect = "3s"
proxy_from_env = false
pool_idle = 16
pool_idle_timeout = "20s"
http2_streams = 50
http2_prior_knowledge = true
"#;
