// scratch: step-level vLLM-like engine behind the scheduler, open loop
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_config::{LimitConfig, TargetConfig};
use tidegate_policy::adaptive::*;
use tidegate_policy::schedule::*;
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
    grant: Option<Grant>,
    arrived: f64,
    sent: f64,
    first: bool,
    prefill: u64,
    left: u64,
    out: u64,
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: f64| {
        a.iter().find_map(|x| x.strip_prefix(&format!("{k}=")).map(|v| v.parse().unwrap())).unwrap_or(d)
    };
    let (seqs, batched) = (get("seqs", 16.0) as usize, get("batched", 1024.0) as u64);
    let (base, seq, tok) = (get("base", 30.0) / 1e3, get("seq", 0.5) / 1e3, get("tok", 100.0) / 1e6);
    let (input, output, var, mix) = (get("in", 100.0), get("out", 50.0), get("var", 0.0), get("mix", 0.0));
    let (obj, secs, rate) = (get("obj", 1.0), get("secs", 120.0), get("rate", 11.0));
    let (cap, wait) = (get("cap", 0.0), get("wait", 0.0));
    let mut target = TargetConfig::new("t");
    target.cap = 256;
    if cap > 0.0 {
        target.cap = cap as usize;
        target.limit = LimitConfig::Fixed;
    } else {
        target.ttft = Some(Duration::from_secs_f64(obj));
    }
    if wait > 0.0 {
        target.wait = Some(Duration::from_secs_f64(wait));
    }
    let t0 = Instant::now();
    let at = |t: f64| t0 + Duration::from_secs_f64(t);
    let mut sch: Scheduler<usize> = Scheduler::new(&SchedulerSettings::from(&target), t0);
    let mut r = Rng(get("seed", 1.0) as u64 * 7919 + 12345);
    let mut calls: Vec<Call> = vec![];
    let (mut waiting, mut running) = (VecDeque::new(), Vec::<usize>::new());
    let (mut t, mut next_arrival) = (0.0, 0.0);
    let (mut refused, mut good, mut adm, mut adm_ok, mut done) = (0, 0, 0, 0, 0);
    let warm = secs / 4.0;
    let mut up = vec![];
    let (mut ws, mut rs) = (0.0, 0.0);
    let (mut lo, mut hi) = (usize::MAX, 0);
    macro_rules! pump {
        ($w:expr) => {{
            let w: f64 = $w;
            let e = sch.expired(at(w)).len();
            if w > warm {
                refused += e;
            }
            let mut any = e > 0;
            while let Some((id, g)) = sch.next(at(w)) {
                let c: &mut Call = &mut calls[id];
                c.grant = Some(g);
                c.sent = w;
                waiting.push_back(id);
                any = true;
            }
            any
        }};
    }
    while t < secs {
        // one engine step; arrivals during it reach the scheduler at their time, the engine at its end
        let mut budget = batched;
        let (mut tokens, mut n) = (0u64, 0usize);
        let mut produced = vec![];
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
            let Some(id) = waiting.pop_front() else { break };
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
        let step =
            if n == 0 { 0.002 } else { base + seq * n as f64 + tok * tokens.saturating_sub(n as u64) as f64 };
        let end = t + step;
        loop {
            let w = sch.next_wake(at(t)).map(|w| w.saturating_duration_since(t0).as_secs_f64() + 1e-9);
            let w = w.filter(|w| *w < end && *w > t);
            if next_arrival < end && w.is_none_or(|w| next_arrival <= w) {
                let x = next_arrival;
                next_arrival += r.exp() / rate;
                t = t.max(x);
                let i = (if r.n() < mix { 8.0 * input } else { input }) as u64;
                let o = (output * (1.0 + var * (2.0 * r.n() - 1.0))).max(2.0) as u64;
                let mut ticket = Ticket::new(Arc::from("a"), at(x), at(x + 600.0));
                ticket.streams = true;
                ticket.wait = (wait > 0.0).then(|| Duration::from_secs_f64(wait));
                ticket.demand.input = i;
                ticket.demand.output = o;
                calls.push(Call {
                    grant: None,
                    arrived: x,
                    sent: x,
                    first: false,
                    prefill: i,
                    left: o,
                    out: o,
                });
                let id = calls.len() - 1;
                match sch.try_admit(at(x), &ticket) {
                    Ok(Some(g)) => {
                        calls[id].grant = Some(g);
                        waiting.push_back(id);
                    }
                    Ok(None) => {
                        sch.enqueue(at(x), ticket, id);
                    }
                    Err(_) => {
                        if x > warm {
                            refused += 1;
                        }
                    }
                }
            } else if let Some(w) = w {
                t = w;
                if !pump!(w) {
                    break;
                }
            } else {
                break;
            }
        }
        if n > 0 {
            ws += waiting.len() as f64 * step;
            rs += running.len() as f64 * step;
        }
        t = end;
        pump!(t);
        for id in produced {
            let c = &mut calls[id];
            c.left -= 1;
            let mut g = c.grant.take().unwrap();
            if !c.first {
                c.first = true;
                sch.on_first_token(at(t), &mut g);
                if t > warm {
                    up.push(t - c.sent);
                    adm += 1;
                    if t - c.arrived <= obj {
                        good += 1;
                        adm_ok += 1;
                    }
                }
            }
            if c.left == 0 {
                g.sent = true;
                g.outcome = Ended::Completed { output: c.out };
                sch.release(at(t), g);
                running.retain(|x| *x != id);
                if t > warm {
                    done += 1;
                }
            } else {
                c.grant = Some(g);
            }
        }
        pump!(t);
        if t > warm {
            let l = sch.view(at(t)).limit;
            lo = lo.min(l);
            hi = hi.max(l);
        }
    }
    up.sort_by(f64::total_cmp);
    let q = |p: f64| {
        up.get(((up.len() as f64 * p) as usize).min(up.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let s = secs - warm;
    println!(
        "good/s {:5.2} ok/adm {:.3} refused/s {:5.2} done/s {:5.2} up p50 {:.3} p95 {:.3} p99 {:.3} limit {lo}..{hi} w/r {:.2}",
        good as f64 / s,
        adm_ok as f64 / adm.max(1) as f64,
        refused as f64 / s,
        done as f64 / s,
        q(0.5),
        q(0.95),
        q(0.99),
        ws / rs.max(1e-9)
    );
}
