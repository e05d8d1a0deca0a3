//! `share-cost`: the time that a call within the lease takes, and the messages of each process.

use std::future::Future;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use http_body_util::BodyExt;
use tidegate::config::{Config, EngineMetricsPolicy, Share, Target};
use tidegate::{Context, Gate, RequestBody, ResponseBody, Transport};
use tokio::runtime::Runtime;

use super::upstream::Upstream;
use super::{Directory, Settings, sharing, sleep, start, wait_until_full};
use crate::Fallible;
use crate::client_call::{Ask, URL};
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

const ROUNDS: usize = 4_001;
/// Short enough for many batches without another process.
const BATCH: usize = 100;
/// The slots that are taken and released before each batch, so that the lease has room.
const ROOM: usize = 8;
const CAP: usize = 64;
/// The period in which messages are counted.
const COUNTED: Duration = Duration::from_secs(10);

/// Measures times and messages, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-cost", []);
    measure_times(&mut report)?;
    measure_messages(&mut report)?;
    Ok(report)
}

/// Times a slot and a whole call with and without a share, in turn. The minimum over the rounds is
/// what other work on the machine affects least.
fn measure_times(report: &mut Report) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let name = format!("bench-{}", std::process::id());
    let gate = |share: bool| -> Fallible<Gate> {
        let target = Target::new("sim").url(URL).cap(CAP).metrics(EngineMetricsPolicy::Off);
        let config = Config::builder().target(target);
        let config = if share { config.share(Share::local().name(name.as_str())) } else { config };
        Ok(Gate::over(config.build()?, instant())?)
    };
    let (shared, separate) = (gate(true)?, gate(false)?);
    let context = Context::default();
    let mut least = [[f64::INFINITY; 2]; 2];
    for _ in 0..ROUNDS {
        for (gate, least) in [&shared, &separate].into_iter().zip(&mut least) {
            let slots = std::iter::repeat_with(|| gate.acquire_slot("sim", &context)).take(ROOM);
            drop(runtime.block_on(futures_util::future::join_all(slots)));
            let slot = || drop(ready(&runtime, gate.acquire_slot("sim", &context)));
            let call = || drop(ready(&runtime, whole(gate)));
            for (time, least) in [time(slot), time(call)].into_iter().zip(least) {
                *least = least.min(time);
            }
        }
    }
    let [shared, separate] = least;
    for (what, shared, separate) in [("slot", shared[0], separate[0]), ("whole call", shared[1], separate[1])]
    {
        report.figure(format!("{what}, ns"), shared);
        report.peer("not shared", format!("{what}, ns"), separate);
        report.bar(format!("{what}: ns more than without a share"), shared - separate, Op::AtMost, 150.0);
    }
    Ok(())
}

/// Returns the mean time of an operation in nanoseconds.
fn time(mut operation: impl FnMut()) -> f64 {
    let start = std_now();
    (0..BATCH).for_each(|_| operation());
    start.elapsed().as_secs_f64() * 1e9 / BATCH as f64
}

/// Returns the result of a future, which is usually ready at once.
fn ready<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let entered = runtime.enter();
    let polled = future.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    drop(entered);
    match black_box(polled) {
        Poll::Ready(result) => result,
        // The lease has shrunk, because this process was not running.
        Poll::Pending => runtime.block_on(future),
    }
}

async fn whole(gate: &Gate) -> Fallible<()> {
    let ask = Ask { tenant: "a", prompt: 8, output: 8, stream: false };
    gate.client().call(ask.request(URL)).await?.into_body().collect().await?;
    Ok(())
}

/// Returns a transport whose answers are ready immediately.
pub(super) fn instant() -> Transport {
    Transport::new(tower::service_fn(|_: http::Request<RequestBody>| async {
        Ok(http::Response::new(ResponseBody::full(
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        )))
    }))
}

/// Counts the messages of 16 processes under load. One has the broker. The others reach it through
/// a relay.
fn measure_messages(report: &mut Report) -> Fallible<()> {
    const PROCESSES: usize = 16;
    // The light processes have calls at random times, as many as a tenth of the slots serve.
    let light = 0.1 * CAP as f64 / 12.0;
    for (name, heavy) in [("even load", PROCESSES), ("uneven load", PROCESSES / 4)] {
        let upstream = Upstream::start(Duration::from_secs(1))?;
        let (outer, inner) = (Directory::create()?, Directory::create()?);
        let settings = |member| {
            let is_heavy = member < heavy;
            let shared = sharing(&upstream, CAP, member, if is_heavy { 2 * CAP / heavy + 4 } else { 0 });
            Settings { rate: if is_heavy { 0.0 } else { light }, ..shared }
        };
        let mut settings: Vec<_> = (0..PROCESSES).map(settings).collect();
        let broker = start(&settings.drain(..1).collect::<Vec<_>>(), &inner)?;
        wait_until_full(&broker, &upstream, 1)?;
        let relay = Relay::start(&outer, &inner)?;
        let members = start(&settings, &outer)?;
        wait_until_full(&members, &upstream, CAP)?;
        sleep(Duration::from_secs(2));
        let before = relay.counted();
        let from = std_now();
        sleep(COUNTED);
        let time = from.elapsed().as_secs_f64() * members.len() as f64;
        let after = relay.counted();
        let [sent, received] = [0, 1].map(|which: usize| (after[which] - before[which]) as f64 / time);
        report.figure(format!("{name}: messages of the broker per s and process"), received);
        report.bar(format!("{name}: messages to the broker per s and process"), sent, Op::AtMost, 3.0);
    }
    Ok(())
}

/// Passes messages between members and a broker, and counts them. Its threads end with their
/// connections, and the one that accepts them with the process.
struct Relay {
    /// The number of messages to the broker and from it.
    counts: Arc<[AtomicUsize; 2]>,
}

impl Relay {
    /// Starts a relay from members whose files are in `outer` to the broker of `inner`.
    fn start(outer: &Directory, inner: &Directory) -> Fallible<Self> {
        let socket = outer.broker_file(".0.sock");
        let parent = socket.parent().ok_or("a socket has a directory")?;
        std::fs::DirBuilder::new().mode(0o700).create(parent)?;
        let listener = UnixListener::bind(&socket)?;
        let counts = Arc::<[AtomicUsize; 2]>::default();
        let (broker, counted): (PathBuf, _) = (inner.broker_file(".0.sock"), counts.clone());
        std::thread::spawn(move || {
            for member in listener.incoming() {
                let Ok((member, broker)) =
                    member.and_then(|member| Ok((member, UnixStream::connect(&broker)?)))
                else {
                    continue;
                };
                let (Ok(from_member), Ok(from_broker)) = (member.try_clone(), broker.try_clone()) else {
                    continue;
                };
                for (from, to, which) in [(from_member, broker, 0), (from_broker, member, 1)] {
                    let counts = counted.clone();
                    std::thread::spawn(move || pass(from, to, &counts[which]));
                }
            }
        });
        Ok(Self { counts })
    }

    fn counted(&self) -> [usize; 2] {
        [0, 1].map(|which: usize| self.counts[which].load(Ordering::Relaxed))
    }
}

/// Passes bytes, and counts lines.
fn pass(mut from: UnixStream, mut to: UnixStream, count: &AtomicUsize) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        count.fetch_add(bytes.iter().filter(|byte| **byte == b'\n').count(), Ordering::Relaxed);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
