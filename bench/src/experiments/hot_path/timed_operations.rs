//! The timed operations ("contenders"), each as a closure that one thread runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use tidegate::config::{Config, Mode, RateConfig, Target, Tenant};
use tidegate::internals::{Admission, BudgetSet};
use tidegate::policy::adaptive::Ended;
use tidegate::policy::schedule::{SchedulerSettings, Ticket};
use tidegate::{Gate, RequestBody, ResponseBody, Transport};
use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimit;
use tower::{Service, service_fn};

use super::std_now;
use crate::Fallible;
use crate::client_call::{Ask, URL};

pub(super) const BARE: &str = "bare minimum";
pub(super) const ADMIT: &str = "admit + release";
pub(super) const ADMIT_JUDGED: &str = "admit + judge + release";
pub(super) const ADAPTIVE: &str = "admit + first token + judge + release, the limit found";
pub(super) const WHOLE: &str = "whole call, enforce, over an instant transport";
pub(super) const WHOLE_OFF: &str = "whole call, off, over an instant transport";
pub(super) const SEMAPHORE: &str = "tokio Semaphore";
pub(super) const TOWER: &str = "tower ConcurrencyLimit + governor";

type Work = Box<dyn FnMut()>;

pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) ours: bool,
    /// The factor by which the number of operations per round is reduced. It is above 1 for slow
    /// operations.
    pub(super) slower: usize,
    /// Creates the closure of one thread. It may share state with the closures of other threads.
    pub(super) make: Box<dyn Fn() -> Work + Sync>,
}

fn contender(
    name: &'static str,
    ours: bool,
    slower: usize,
    make: impl Fn() -> Work + Sync + 'static,
) -> Contender {
    Contender { name, ours, slower, make: Box::new(make) }
}

/// Returns a configuration with most features in use: named and unnamed tenants with caps, a
/// maximum queue wait, deadlines, and cool-downs.
fn config(mode: Mode) -> Fallible<Config> {
    config_of(Target::new("sim").url(URL).cap(64), mode)
}

fn config_of(target: Target, mode: Mode) -> Fallible<Config> {
    let mut target = target.wait(Duration::from_secs(30));
    for name in ["a", "b", "c", "d"] {
        target = target.tenant(name, Tenant::new().cap(32).weight(2.0));
    }
    let second = Target::new("other").url("http://other.test");
    Ok(Config::builder().mode(mode).target(second).target(target).build()?)
}

pub(super) fn admission() -> Fallible<Arc<Admission>> {
    admission_of(config(Mode::Enforce)?)
}

fn admission_of(config: Config) -> Fallible<Arc<Admission>> {
    let target = config.targets.iter().find(|target| &*target.name == "sim").ok_or("no target")?;
    let settings =
        SchedulerSettings { queue: 1_000_000, backlog: 1_000_000, ..SchedulerSettings::from(target) };
    Ok(Admission::new(
        "sim".into(),
        &settings,
        BudgetSet::new(&RateConfig::default(), tokio::time::Instant::now().into_std()),
        None,
        "",
    ))
}

pub(super) fn ticket(tenant: &Arc<str>) -> Ticket {
    let now = std_now();
    Ticket {
        wait: Some(Duration::from_secs(30)),
        ..Ticket::new(tenant.clone(), now, now + Duration::from_secs(600))
    }
}

pub(super) fn contenders() -> Fallible<Vec<Contender>> {
    let (plain, judged) = (admission()?, admission()?);
    let adaptive = Target::new("sim").url(URL).ttft(Duration::from_secs(2));
    let found = admission_of(config_of(adaptive, Mode::Enforce)?)?;
    let semaphore = Arc::new(Semaphore::new(64));
    let gate = Gate::over(config(Mode::Enforce)?, instant())?;
    let off = Gate::over(config(Mode::Off)?, instant())?;
    let identified = gate.clone();
    Ok(vec![
        contender(BARE, true, 1, bare()),
        contender(ADMIT, true, 1, move || {
            let (admission, ticket) = (plain.clone(), ticket(&"a".into()));
            Box::new(move || drop(black_box(admission.try_acquire(&ticket))))
        }),
        contender(ADMIT_JUDGED, true, 1, move || {
            let (admission, ticket) = (judged.clone(), ticket(&"a".into()));
            Box::new(move || {
                if let Ok(Some(mut permit)) = admission.try_acquire(&ticket) {
                    permit.on_success();
                }
            })
        }),
        contender(ADAPTIVE, true, 1, move || {
            let (admission, ticket) = (found.clone(), Ticket { streams: true, ..ticket(&"a".into()) });
            Box::new(move || {
                if let Ok(Some(mut permit)) = admission.try_acquire(&ticket) {
                    permit.on_first_token();
                    permit.on_success();
                    permit.set_ended(Ended::Completed { output: 100 });
                }
            })
        }),
        contender("identify (facts of the request, target, tenant)", true, 4, move || {
            let gate = identified.clone();
            let mut request = ask();
            Box::new(move || {
                drop(black_box(gate.identify(&mut request)));
            })
        }),
        contender(WHOLE, true, 20, move || whole(&gate)),
        contender(WHOLE_OFF, true, 20, move || whole(&off)),
        contender(SEMAPHORE, false, 1, move || {
            let semaphore = semaphore.clone();
            Box::new(move || drop(black_box(semaphore.clone().try_acquire_owned())))
        }),
        contender(TOWER, false, 1, tower_and_governor()),
    ])
}

/// Returns an operation that does the minimum of any admission: three clock reads, two uncontended
/// locks, and two look-ups by name.
fn bare() -> impl Fn() -> Work + Sync + 'static {
    || {
        let names: [Arc<str>; 5] = ["a", "b", "c", "d", "e"].map(Arc::from);
        let map: HashMap<Arc<str>, usize> = names.iter().cloned().zip(0..).collect();
        let locks = (Mutex::new(0usize), Mutex::new(0usize));
        let name = names[0].clone();
        Box::new(move || {
            black_box(std_now());
            *locks.0.lock() += map.get(&name).copied().unwrap_or_default();
            black_box(std_now());
            *locks.1.lock() += map.get(black_box(&name)).copied().unwrap_or_default();
            black_box(std_now());
        })
    }
}

fn ask() -> http::Request<RequestBody> {
    Ask { tenant: "a", prompt: 8, output: 8, stream: false }.request(URL)
}

/// Returns a transport whose answers are ready immediately.
fn instant() -> Transport {
    Transport::new(service_fn(|_: http::Request<RequestBody>| async {
        Ok(http::Response::new(ResponseBody::full(
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        )))
    }))
}

fn whole(gate: &Gate) -> Work {
    use http_body_util::BodyExt;
    let client = gate.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.ok().map(Arc::new);
    Box::new(move || {
        let Some(runtime) = &runtime else { return };
        let call = client.call(ask());
        let handle = runtime.handle().enter();
        // The call is ready at the first poll, because nothing waits.
        let mut exchange = std::pin::pin!(async { call.await?.into_body().collect().await });
        let polled = exchange.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
        drop(handle);
        assert!(matches!(black_box(polled), Poll::Ready(Ok(_))), "an instant transport answers at once");
    })
}

type Nothing = fn(()) -> Ready<Result<(), Infallible>>;

fn tower_and_governor() -> impl Fn() -> Work + Sync + 'static {
    let limit = Arc::new(Semaphore::new(64));
    let rate: Arc<DefaultDirectRateLimiter> =
        Arc::new(RateLimiter::direct(Quota::per_second(NonZeroU32::MAX)));
    move || {
        let inner: Nothing = |()| ready(Ok(()));
        let mut service = ConcurrencyLimit::with_semaphore(service_fn(inner), limit.clone());
        let rate = rate.clone();
        Box::new(move || {
            let mut context = TaskContext::from_waker(Waker::noop());
            let passed = rate.check().is_ok();
            if Service::<()>::poll_ready(&mut service, &mut context).is_ready() {
                let mut call = std::pin::pin!(service.call(()));
                let _ = black_box((passed, call.as_mut().poll(&mut context)));
            }
        })
    }
}
