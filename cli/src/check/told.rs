//! A configuration in words, every setting of it.
//!
//! Each of these takes its settings apart by name, so that one that is added is not forgotten here.

use std::fmt::Write as _;
use std::time::Duration;

use http::HeaderName;
use tidegate::config::{
    AdaptiveConfig, CostRule, Counting, Decrease, Detector, HeaderPolicy, LaneConfig, LimitConfig, Mode,
    OnFull, Percentile, PoolConfig, Predict, RateConfig, ReplicaConfig, ReplicaSource, RetryConfig,
    TargetConfig, TenantConfig, Tokenizer, ToolConfig, TransportConfig,
};
use tidegate::transport::ProxyRules;
use tidegate::{Config, Lane, schedule};

/// What a target is called that nobody configured.
pub(super) const OTHERS: &str = "any other target (one for each origin, credential and model)";

/// What is kept to without an objective.
const USUAL: &str = "keeps to three times what calls take when there is room";

pub(super) fn told(config: &Config) -> String {
    let Config { mode, targets, default_target, budgets, tools, transport } = config;
    let mode = match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    };
    let mut text = format!("mode {mode}\n");
    for target in targets {
        text += &told_target(&heading(target), target);
    }
    text += &told_target(OTHERS, default_target);
    for (name, rates) in budgets {
        let _ = writeln!(text, "budget {name}\n  {}", told_rates(rates));
    }
    for (name, tool) in tools {
        text += &told_tool(name, tool);
    }
    text + &told_transport(transport)
}

fn heading(target: &TargetConfig) -> String {
    let of = |words: &[String], all: &str| if words.is_empty() { all.to_owned() } else { words.join(", ") };
    let (urls, models) = (&target.matches.urls, &target.matches.models);
    format!("target {}: {} at {}", target.name, of(models, "every model"), of(urls, "every URL"))
}

fn told_target(heading: &str, target: &TargetConfig) -> String {
    let TargetConfig {
        name: _,
        matches: _,
        cap,
        limit,
        queue,
        wait,
        on_full,
        deadline,
        first_token,
        idle,
        stall,
        ttft,
        tpot,
        aging,
        retry,
        backlog,
        lanes,
        cost,
        short_bias,
        reclaim,
        predict,
        max_prompt,
        rates,
        budget,
        kv_tokens,
        kv_headroom,
        tokenizer,
        ask_usage,
        pool,
        fallback,
        model,
        key_env,
        forward_headers,
        default_tenant,
        tenants,
    } = target;
    let RetryConfig { attempts, base, max, ratio, reserve } = retry;
    let mut text = format!("{heading}\n");
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    let waiting = waiting(*on_full, *queue, *wait);
    let together = if pool.is_some() { " of all replicas together" } else { "" };
    line(format!("cap {cap}{together}; {waiting}; {backlog} in all; a step up each {}", time(*aging)));
    let ceiling = pool.as_ref().map_or(*cap, |pool| pool.cap);
    let limit = match limit {
        LimitConfig::Fixed => fixed(ceiling),
        LimitConfig::Adaptive(settings) => {
            let whose =
                if ttft.is_some() { "the TTFT objective" } else { "the TTFT objectives of its lanes" };
            let upstream = schedule::Settings::from(target).adaptive.and_then(|settings| settings.objective);
            let mut kept = upstream.map_or_else(
                || USUAL.to_owned(),
                |upstream| format!("keeps to {whose}, of which {} is the upstream's", time(upstream)),
            );
            if let Some(tpot) = tpot {
                kept += &format!(", and to a TPOT of {}", time(*tpot));
            }
            let awaiting = match (settings.awaiting, settings.decrease) {
                (Some(most), _) => most.to_string(),
                (None, Decrease::Served) => "as many as is found".to_owned(),
                (None, Decrease::Factor(_) | Decrease::Step(_)) => "any number of them".to_owned(),
            };
            format!("{}; {awaiting} may await their first token", adaptive(ceiling, &kept, settings))
        }
    };
    match pool {
        Some(pool) => {
            line(format!("of each replica: {limit}"));
            told_pool(pool).into_iter().for_each(&mut line);
        }
        None => line(limit),
    }
    line(format!(
        "deadline {}; first token {}; idle {}; stall {}; TTFT objective {}",
        time(*deadline),
        bound(*first_token, "as the client's timeout"),
        bound(*idle, "as the client's timeout"),
        bound(*stall, "off"),
        bound(*ttft, "none"),
    ));
    line(format!(
        "{attempts} attempts, backing off {} to {}; {ratio} retries per call and {reserve} in reserve",
        time(*base),
        time(*max)
    ));
    let longest = max_prompt.map_or("of any length".to_owned(), |most| format!("up to {most} tokens"));
    line(format!("prompts {longest}, counted {}; {}", counted(*tokenizer), refused(*predict)));
    let later = short_bias
        .map_or("in their order".to_owned(), |later| format!("later by {} per 1000 tokens", time(later)));
    let lent = if *reclaim { "called back" } else { "lent until its calls end" };
    line(format!("charged {}; of one tenant, calls stand {later}; a floor is {lent}", charged(*cost)));
    line(budget.as_ref().map_or_else(|| told_rates(rates), |name| format!("rates: those of budget {name}")));
    line(match kv_tokens {
        Some(tokens) => format!("memory for {tokens} tokens, {kv_headroom} of it kept free"),
        None => format!("memory not known (where it is, {kv_headroom} of it is kept free)"),
    });
    let usage = if *ask_usage { "asked for" } else { "left as the caller asked" };
    let spare =
        fallback.as_ref().map_or("nothing falls back".to_owned(), |name| format!("falls back to {name}"));
    line(format!("{spare}; usage of streams is {usage}"));
    if model.is_some() || key_env.is_some() {
        let model = model.as_ref().map_or("the caller's model".to_owned(), |model| format!("model {model}"));
        let key = key_env.as_ref().map_or("the caller's key (on the same host only)".to_owned(), |name| {
            format!("the key in {name}")
        });
        line(format!("what falls back to it has {model} and {key}"));
    }
    if !forward_headers.is_empty() {
        let names: Vec<&str> = forward_headers.iter().map(HeaderName::as_str).collect();
        line(format!("calls that fall back to it also keep the headers {}", names.join(", ")));
    }
    for (lane, own) in Lane::ALL.iter().zip(lanes) {
        line(format!("lane {}: {}", lane.as_str(), told_lane(own)));
    }
    line(format!("any other tenant: {}", told_tenant(default_tenant)));
    for (id, tenant) in tenants {
        line(format!("tenant {id}: {}", told_tenant(tenant)));
    }
    text
}

fn told_pool(pool: &PoolConfig) -> [String; 3] {
    let PoolConfig {
        source,
        cap: _,
        health,
        poll,
        down_after,
        cut_after,
        slow_start,
        session,
        affinity,
        hedge,
        key_env,
    } = pool;
    let source = match source {
        ReplicaSource::Listed(members) => members.iter().map(told_replica).collect::<Vec<_>>().join(", "),
        ReplicaSource::Dns { url, every } => {
            format!("the addresses of {url}, looked up each {}", time(*every))
        }
        ReplicaSource::File { path, every } => {
            format!("what {} names, looked at each {}", path.display(), time(*every))
        }
        ReplicaSource::Dynamic => "what the program tells (set_replicas)".to_owned(),
    };
    let health = health.as_ref().map_or("not asked".to_owned(), |path| format!("asked at {path}"));
    let poll = poll.map_or("not asked".to_owned(), |pace| format!("asked each {}", time(pace)));
    let key = key_env.as_ref().map_or("without a key".to_owned(), |name| format!("with the key in {name}"));
    let slow = if slow_start.is_zero() { "at once".to_owned() } else { format!("in {}", time(*slow_start)) };
    let hedged = hedge.map_or("never hedged".to_owned(), |after| format!("hedged after {}", time(after)));
    let session = session.as_ref().map(|header| format!("by session ({header})"));
    let prompt = affinity.then(|| "by the beginning of their prompts".to_owned());
    let near: Vec<String> = session.into_iter().chain(prompt).chain(["by load".to_owned()]).collect();
    [
        format!("a pool of {source}"),
        format!(
            "health {health}; figures {poll}; models asked {key}; down after {} of silence, streams cut after {}; back to a whole share {slow}",
            time(*down_after),
            time(*cut_after)
        ),
        format!("calls are placed {}; {hedged}", near.join(", ")),
    ]
}

fn told_replica(member: &ReplicaConfig) -> String {
    let ReplicaConfig { url, weight, models, kv_tokens } = member;
    let more = [
        (*weight != 1.0).then(|| format!("weight {weight}")),
        models.as_ref().map(|models| format!("models {}", models.join(", "))),
        kv_tokens.map(|tokens| format!("memory for {tokens} tokens")),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    if more.is_empty() { url.to_string() } else { format!("{url} ({})", more.join("; ")) }
}

fn fixed(cap: usize) -> String {
    format!("limit fixed: {cap} slots, always")
}

fn adaptive(cap: usize, kept: &str, settings: &AdaptiveConfig) -> String {
    // Only calls to models have first tokens to await.
    let AdaptiveConfig { start, min, detector, decrease, awaiting: _ } = settings;
    let detector = match detector {
        Detector::Exceedance => "by a sequential test of the share of late calls".to_owned(),
        Detector::Percentile(Percentile { quantile, window, tick, band, hold }) => format!(
            "by the {quantile} quantile over {}, looked at each {}, dead band {band}, {hold} ticks of rest after a cut",
            time(*window),
            time(*tick)
        ),
    };
    let decrease = match decrease {
        Decrease::Served => "to what is served".to_owned(),
        Decrease::Factor(share) => format!("to {share} of it"),
        Decrease::Step(slots) => format!("by {slots} slots"),
    };
    format!(
        "limit adaptive: {min} to {cap} slots, {start} at the start; {kept}, judged {detector}; cut {decrease}"
    )
}

fn counted(tokenizer: Tokenizer) -> &'static str {
    match tokenizer {
        Tokenizer::Learned => "by their length, as it is learned",
        Tokenizer::Bpe => "exactly",
        Tokenizer::Vllm => "by the server",
    }
}

fn refused(predict: Predict) -> &'static str {
    match predict {
        Predict::Deadline => "refuses what would wait beyond its deadline or wait budget",
        Predict::Objective => "refuses what would wait beyond its deadline, wait budget or TTFT objective",
        Predict::Off => "refuses nothing for the wait that is expected",
    }
}

fn charged(cost: CostRule) -> &'static str {
    match cost {
        CostRule::Auto => "by memory and time for pools and where kv_tokens is configured, else by tokens",
        CostRule::Tokens => "by tokens",
        CostRule::Kv => "by memory and time",
        CostRule::Calls => "by calls",
    }
}

fn told_rates(rates: &RateConfig) -> String {
    let RateConfig { rpm, rpd, tpm, tpd, itpm, otpm, burst, counting, headers } = rates;
    let rates = [
        (rpm, "requests a minute"),
        (rpd, "requests a day"),
        (tpm, "tokens a minute"),
        (tpd, "tokens a day"),
        (itpm, "input tokens a minute"),
        (otpm, "output tokens a minute"),
    ];
    let set: Vec<String> =
        rates.iter().filter_map(|(rate, what)| rate.map(|rate| format!("{rate} {what}"))).collect();
    let set = if set.is_empty() { "none set".to_owned() } else { set.join(", ") };
    let counting = match counting {
        Counting::Auto => "as the provider seems to",
        Counting::Sum => "input and the most output, at arrival",
        Counting::Larger => "the larger of input and the most output, at arrival",
        Counting::Actual => "input at arrival, output as it comes",
        Counting::Input => "input only",
    };
    let headers = match headers {
        HeaderPolicy::Follow => "followed",
        HeaderPolicy::Lower => "followed downwards",
        HeaderPolicy::Ignore => "ignored",
    };
    format!("rates: {set}; {} of them at once; counting {counting}; headers are {headers}", time(*burst))
}

fn told_lane(lane: &LaneConfig) -> String {
    let LaneConfig { floor, queue, wait, ttft } = lane;
    format!(
        "floor {floor}, {}, wait {}, TTFT objective {}",
        own("queue", *queue),
        bound(*wait, "the target's"),
        bound(*ttft, "the target's")
    )
}

fn told_tenant(tenant: &TenantConfig) -> String {
    let TenantConfig { weight, cap, queue, floor, tpm, shed } = tenant;
    let shed = if *shed { "may be shed" } else { "never shed" };
    format!(
        "weight {weight}, {}, {}, floor {floor}, {}, {shed}",
        own("cap", *cap),
        own("queue", *queue),
        own("tpm", *tpm)
    )
}

fn own<T: std::fmt::Display>(word: &str, most: Option<T>) -> String {
    most.map_or(format!("no {word} of its own"), |most| format!("{word} {most}"))
}

fn told_tool(name: &str, tool: &ToolConfig) -> String {
    let ToolConfig { cap, limit, latency, queue, wait, on_full, rps, rpm } = tool;
    let rate = match (rps, rpm) {
        (Some(rate), _) => format!("{rate} calls a second"),
        (None, Some(rate)) => format!("{rate} calls a minute"),
        (None, None) => "no rate of its own".to_owned(),
    };
    let limit = match limit {
        LimitConfig::Fixed => fixed(*cap),
        LimitConfig::Adaptive(settings) => {
            let kept = latency.map_or_else(
                || USUAL.to_owned(),
                |latency| format!("keeps to a latency of {}", time(latency)),
            );
            adaptive(*cap, &kept, settings)
        }
    };
    format!("tool {name}\n  cap {cap}; {}; {rate}\n  {limit}\n", waiting(*on_full, *queue, *wait))
}

fn told_transport(transport: &TransportConfig) -> String {
    let TransportConfig {
        connect,
        proxy_from_env,
        pool_idle,
        pool_idle_timeout,
        http2_streams,
        http2_prior_knowledge,
    } = transport;
    // A Python or Node process reads its environment by the rules of httpx or undici.
    let proxies = match proxy_from_env.then(ProxyRules::from_process_env) {
        None => "none".to_owned(),
        Some(Ok(rules)) => format!("from the environment (here: {rules})"),
        Some(Err(error)) => error.message().to_owned(),
    };
    let h2c = if *http2_prior_knowledge { "HTTP/2" } else { "HTTP/1.1" };
    format!(
        "transport\n  connecting {}; proxies: {proxies}; {pool_idle} idle connections a host, each kept {}\n  \
         {http2_streams} streams on an HTTP/2 connection; {h2c} without TLS\n",
        time(*connect),
        time(*pool_idle_timeout)
    )
}

fn waiting(on_full: OnFull, queue: usize, wait: Option<Duration>) -> String {
    match (on_full, wait) {
        (OnFull::Refuse, _) => "refuses what finds no slot".to_owned(),
        (OnFull::Wait, Some(wait)) => format!("{queue} a tenant may wait, {} each", time(wait)),
        (OnFull::Wait, None) => format!("{queue} a tenant may wait"),
    }
}

fn bound(span: Option<Duration>, none: &str) -> String {
    span.map_or_else(|| none.to_owned(), time)
}

fn time(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
