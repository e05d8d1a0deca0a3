//! `share-redis-chaos`: what happens to a cap if processes or the Redis server are killed, stopped,
//! wiped or cut off.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_test_servers::RedisServer;

use super::chaos::{AVERAGED, CALLERS, CAP, PROCESSES, Run, SERVICE};
use super::upstream::Upstream;
use super::{Directory, Member, Settings, sharing, sleep, sleep_until, start, wait_until_full};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::Report;

/// A lease and two seconds, in which all slots must be used again.
const RECOVERY: Duration = Duration::from_secs(10);

/// The faults of a run, and what they may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    /// Each second, a random process is killed, and started again.
    Kills,
    /// A random process is stopped for 0.5 s, and each third time for 12 s, longer than a lease.
    Stops,
    /// The server is killed, and started again with nothing after 1 s.
    ServerKills,
    /// The server is stopped for 1 s, and each third time for 12 s.
    ServerStops,
    /// The server loses all keys.
    Wipes,
    /// Half of the processes lose the network for 1 s, and each third time for 12 s. In strict
    /// mode.
    Cuts,
}

impl Faults {
    const ALL: [(Self, &'static str, usize, usize); 6] = [
        (Self::Kills, "kills", 120, 0),
        (Self::Stops, "stops", 12, 0),
        (Self::ServerKills, "server killed", 10, CAP / 4),
        (Self::ServerStops, "server stopped", 6, 0),
        (Self::Wipes, "server wiped", 15, CAP / 4),
        (Self::Cuts, "network cut", 6, 0),
    ];
}

/// Measures all kinds of faults, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-redis-chaos", []);
    for (faults, name, number, excess) in Faults::ALL {
        let run = play(faults, number)?;
        report.figure(format!("{name}: faults"), number as f64);
        run.add_to(&mut report, name, excess, RECOVERY.as_secs_f64());
    }
    Ok(report)
}

fn play(faults: Faults, number: usize) -> Fallible<Run> {
    eprintln!("{faults:?}");
    let upstream = Upstream::start(SERVICE)?;
    let directory = Directory::create()?;
    let mut server = RedisServer::start(&[])?;
    let relay = Relay::start(server.port())?;
    let settings = |member| {
        let is_cut_off = faults == Faults::Cuts && member % 2 == 0;
        let url = if is_cut_off { format!("redis://127.0.0.1:{}", relay.port) } else { server.url() };
        let strict = faults == Faults::Cuts;
        Settings { share: Some(url), strict, ..sharing(&upstream, CAP, member, CALLERS) }
    };
    let settings: Vec<_> = (0..PROCESSES).map(settings).collect();
    let mut members = start(&settings, &directory)?;
    let began = std_now();
    wait_until_full(&members, &upstream, CAP)?;
    sleep(Duration::from_secs(3));
    let mut failures = Vec::new();
    let first_fault = std_now();
    let mut last_fault = first_fault;
    for round in 0..number {
        let long = if round % 3 == 2 { Duration::from_secs(12) } else { Duration::from_secs(1) };
        let victim = fastrand::usize(..PROCESSES);
        let (Some(member), Some(settings)) = (members.get_mut(victim), settings.get(victim)) else {
            continue;
        };
        match faults {
            Faults::Kills => {
                failures.extend(member.failures());
                member.kill();
                *member = Member::start(settings, directory.path())?;
            }
            Faults::Stops => {
                member.signal("STOP")?;
                sleep(long.saturating_sub(Duration::from_millis(500)));
                member.signal("CONT")?;
            }
            Faults::ServerKills => {
                let port = server.port();
                drop(server);
                sleep(Duration::from_secs(1));
                server = RedisServer::start_on(port, &[])?;
            }
            Faults::ServerStops => {
                server.signal("STOP")?;
                sleep(long);
                server.signal("CONT")?;
            }
            Faults::Wipes => drop(server.command(&["flushall"])?),
            Faults::Cuts => {
                relay.cut();
                sleep(long);
                relay.restore();
            }
        }
        last_fault = std_now();
        sleep(match faults {
            Faults::Kills | Faults::Stops => Duration::from_secs(1),
            // Members return within two heartbeats.
            _ => Duration::from_secs(4),
        });
    }
    sleep_until(last_fault + RECOVERY + 2 * AVERAGED);
    let end = std_now();
    failures.extend(members.iter().flat_map(Member::failures));
    Ok(Run::evaluate(&upstream, [began, first_fault, last_fault, end], &failures))
}

/// Passes bytes between members and a server, until it is cut. Its threads end with their
/// connections, and the one that accepts them with the process.
struct Relay {
    port: u16,
    is_cut: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Starts a relay to the server on `server`.
    fn start(server: u16) -> Fallible<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (is_cut, connections) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (cut, open) = (is_cut.clone(), connections.clone());
        std::thread::spawn(move || {
            for member in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                let (Ok(from_member), Ok(from_server)) = (member.try_clone(), server.try_clone()) else {
                    continue;
                };
                open.lock().extend([&member, &server].into_iter().flat_map(TcpStream::try_clone));
                std::thread::spawn(move || pass(from_member, server));
                std::thread::spawn(move || pass(from_server, member));
            }
        });
        Ok(Self { port, is_cut, connections })
    }

    /// Closes all connections, and accepts no new ones.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        for connection in self.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn restore(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(buffer.get(..length).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
