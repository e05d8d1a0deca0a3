// scratch: step-level vLLM-like engine against the adaptive limit
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tidegate_config::AdaptiveConfig;
use tidegate_policy::adaptive::*;
struct Rng(u64);
impl Rng {
    fn n(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    fn exp(&mut self) -> f64 {
        -(1.0 - self.n()).ln()
    }
}
struct Call {
    sample: Option<Sample>,
    sent: f64,
    input: u64,
    left: u64,
    prefill: u64,
    out: u64,
    first: f64,
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: f64| {
        a.iter().find_map(|x| x.strip_prefix(&format!("{k}=")).map(|v| v.parse().unwrap())).unwrap_or(d)
    };
    let (seqs, batched) = (get("seqs", 16.0) as usize, get("batched", 1024.0) as u64);
    let (base, seq, tok) = (get("base", 30.0) / 1e3, get("seq", 0.5) / 1e3, get("tok", 100.0) / 1e6);
    let (input, output, var) = (get("in", 100.0), get("out", 50.0), get("var", 0.0));
    let (obj, secs, clients, rate) =
        (get("obj", 0.0), get("secs", 60.0), get("clients", 64.0) as usize, get("rate", 0.0));
    let noise = get("noise", 0.0);
    let trace = get("trace", 0.0);
    let max = get("max", 256.0) as usize;
    let kv = get("kv", 1e9) as u64; // tokens of KV
    let kv_mix = get("mix", 0.0);
    let settings = LimitSettings {
        max,
        objective: (obj > 0.0).then(|| Duration::from_secs_f64(obj)),
        latency: None,
        tpot: None,
        adaptive: AdaptiveConfig::default(),
    };
    let t0 = Instant::now();
    let at = |t: f64| t0 + Duration::from_secs_f64(t);
    let mut lim = Limit::new(&settings, t0);
    let mut r = Rng(get("seed", 1.0) as u64 * 7919 + 12345);
    let mut calls: Vec<Call> = vec![];
    let mut waiting: VecDeque<usize> = VecDeque::new();
    let mut running: Vec<usize> = vec![];
    let mut t = 0.0;
    let mut next_arrival = 0.0;
    let mut local: VecDeque<f64> = VecDeque::new();
    let (mut done, mut done_half, mut preempt) = (0, 0, 0u64);
    let mut ttft = vec![];
    let mut wait_sum = 0.0;
    let mut run_sum = 0.0;
    let mut busy = 0.0;
    let mut waitmax = 0;
    let mut hist = vec![];
    let mut next_s = 1.0;
    let mut inflight = 0usize;
    let mut slow_until = 0.0;
    let mut slow_next = if noise > 0.0 { r.exp() * 2.0 } else { 1e18 };
    let mut slow = 1.0;
    let mut last = (0, 0);
    let mut maxfl = 0;
    let mut good = 0;
    let mut toks = 0u64;
    let mut tick = |lim: &mut Limit, upto: f64| {
        while let Some(w) = lim.next_wake().filter(|w| *w <= at(upto)) {
            lim.on_tick(w.max(t0) + Duration::from_nanos(1));
        }
    };
    while t < secs {
        if rate > 0.0 {
            while next_arrival <= t {
                local.push_back(next_arrival);
                next_arrival += r.exp() / rate;
            }
        }
        let mut admitted = 0;
        while lim.has_room() && (if rate > 0.0 { !local.is_empty() } else { inflight < clients }) {
            let big = r.n() < kv_mix;
            let i = (if big { 8.0 * input } else { input }).max(1.0) as u64;
            let o = (output * (1.0 + var * (2.0 * r.n() - 1.0))).max(2.0) as u64;
            let s = lim.on_sent(at(t), CallKind { input: i, output: o, streams: true });
            let from = if rate > 0.0 { local.pop_front().unwrap() } else { t };
            let _ = from;
            calls.push(Call {
                sample: Some(s),
                sent: from,
                input: i,
                left: o,
                prefill: i,
                out: o,
                first: 0.0,
            });
            let id = calls.len() - 1;
            calls[id].first = -t - 1.0;
            waiting.push_back(id);
            inflight += 1;
            admitted += 1;
        }
        let _ = admitted;
        maxfl = maxfl.max(inflight);
        // engine step: decode tokens of the running first, then prefill of running/waiting
        let mut budget = batched;
        let mut tokens = 0u64;
        let mut n = 0usize;
        let mut produced = vec![];
        // kv preemption
        loop {
            let used: u64 = running
                .iter()
                .map(|i| {
                    let c = &calls[*i];
                    (c.input - c.prefill.min(c.input) + c.out - c.left + 32) / 32 * 32
                })
                .sum();
            if used > kv && running.len() > 1 {
                let v = running.pop().unwrap();
                preempt += 1;
                let c = &mut calls[v];
                c.prefill = c.input + (c.out - c.left);
                waiting.push_front(v);
            } else {
                break;
            }
        }
        for &id in &running {
            let c = &mut calls[id];
            n += 1;
            if c.prefill > 0 {
                let k = c.prefill.min(budget);
                c.prefill -= k;
                budget -= k;
                tokens += k;
                if c.prefill == 0 {
                    produced.push(id);
                }
            } else {
                budget = budget.saturating_sub(1);
                tokens += 1;
                produced.push(id);
            }
        }
        while running.len() < seqs && budget > 0 {
            let Some(&id) = waiting.front() else { break };
            let used: u64 = running
                .iter()
                .map(|i| {
                    let c = &calls[*i];
                    (c.input.saturating_sub(c.prefill) + c.out - c.left + 32) / 32 * 32
                })
                .sum();
            if used + calls[id].prefill + 32 > kv {
                break;
            }
            waiting.pop_front();
            running.push(id);
            let c = &mut calls[id];
            let k = c.prefill.min(budget);
            c.prefill -= k;
            budget -= k;
            tokens += k;
            n += 1;
            if c.prefill == 0 {
                produced.push(id);
            }
        }
        let mut step = if n == 0 {
            0.002
        } else {
            base + seq * n as f64 + tok * (tokens.saturating_sub(n as u64)) as f64
        };
        if t > slow_next {
            slow_until = t + r.exp() * 0.7 * noise;
            slow = 1.0 + noise * 3.0 * r.exp();
            slow_next = slow_until + r.exp() * 2.0;
        }
        if t < slow_until && n > 0 {
            step *= slow;
        }
        // time passes; overdue ticks
        tick(&mut lim, t + step);
        if n > 0 {
            wait_sum += waiting.len() as f64 * step;
            run_sum += running.len() as f64 * step;
            busy += step;
            if t > 5.0 {
                waitmax = waitmax.max(waiting.len());
            }
        }
        t += step;
        for id in produced {
            let c = &mut calls[id];
            c.left -= 1;
            toks += 1;
            if c.first < 0.0 {
                let sent = -c.first - 1.0;
                c.first = t;
                let mut s = c.sample.take().unwrap();
                lim.on_first_token(at(t), &mut s);
                c.sample = Some(s);
                if t > secs / 3.0 {
                    ttft.push(t - sent);
                }
                if t - c.sent <= if obj > 0.0 { obj } else { 1e9 } {
                    good += 1;
                }
            }
            if c.left == 0 {
                let s = c.sample.take().unwrap();
                lim.on_ended(at(t), s, Ended::Completed { output: c.out });
                done += 1;
                inflight -= 1;
                if t > secs / 3.0 {
                    done_half += 1;
                }
                running.retain(|x| *x != id);
            }
        }
        let cur = (lim.slots(), lim.first_token_limit());
        if trace > 0.0 && cur != last {
            println!(
                "{t:8.3} slots {} bound {} inflight {inflight} running {} waiting {} {:?}",
                cur.0,
                cur.1,
                running.len(),
                waiting.len(),
                lim.last_change().map(|c| c.cause)
            );
            last = cur;
        }
        while next_s <= t {
            let v = lim.view();
            hist.push((v.limit, v.awaiting_limit, inflight, v.cuts));
            next_s += 1.0;
        }
    }
    let v = lim.view();
    ttft.sort_by(f64::total_cmp);
    let q = |p: f64| {
        ttft.get(((ttft.len() as f64 * p) as usize).min(ttft.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let third = &hist[hist.len() / 3..];
    let lo = third.iter().map(|h| h.0).min().unwrap();
    let hi = third.iter().map(|h| h.0).max().unwrap();
    let cuts_late = v.cuts - hist[hist.len() / 3].3;
    let _ = done;
    println!(
        "cuts {:3} (late {:3}) ss {} done/s {:5.2} tok/s {:6.1} good/s {:.2} ttft p50 {:.3} p90 {:.3} p99 {:.3} maxfl {:3} limit {lo}..{hi} wait/run {:.2} waitmax {} preempt/call {:.2}",
        v.cuts,
        cuts_late,
        v.slow_start as u8,
        done_half as f64 / (secs * 2.0 / 3.0),
        toks as f64 / secs,
        good as f64 / secs,
        q(0.5),
        q(0.9),
        q(0.99),
        maxfl,
        wait_sum / run_sum.max(1e-9),
        waitmax,
        preempt as f64 / done.max(1) as f64
    );
    let _ = busy;
}
