//! Tests of the configuration as a whole. Every single bad value is in `tests/vectors/config_errors.json`.

mod builder;
mod layers;
mod properties;

/// One file with every key in it, each other than its default.
const FULL: &str = r#"
mode = "observe"

[defaults]
queue = 500
deadline = "5m"
idle = "1m"
retry = { attempts = 3, ratio = 0.1 }
default_tenant = { cap = 6 }
tenants.acme = { cap = 20 }

[tenants]
acme = { weight = 2, queue = 7 }
batch = { weight = 0.5 }

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
aging = "10s"
retry = { attempts = 5, base = "250ms", max = "20s", ratio = 0.3, reserve = 4 }
default_tenant = { weight = 3, queue = 9 }
tenants.acme = { weight = 4 }
tenants.beta = { cap = 1 }

[targets.llama]
url = ["http://10.0.0.1:8000/v1/", "HTTP://10.0.0.2:80"]

[tools]
db = 8
search = { cap = 4, queue = 16, wait = "5s" }
shell = { cap = 1, on_full = "refuse" }

[transport]
connect = "3s"
proxy_from_env = false
pool_idle = 16
pool_idle_timeout = "20s"
http2_streams = 50
http2_prior_knowledge = true
"#;
