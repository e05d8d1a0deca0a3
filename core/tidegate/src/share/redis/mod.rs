//! The member of a store that several machines share: a Redis or Valkey server.
//!
//! The store is the broker. It runs a script for each message, which divides the cap as
//! [`tidegate_share::Broker`] does, and pushes grants to a channel of each member and resource. A
//! grant that is lost costs time only, because each answer contains the totals.
//!
//! Members publish the events of their calls: at an adaptive limit to the channels of the leader
//! and the deputy, at a pool to one channel that all members receive. See [`tidegate_share::Peers`]
//! for texts that are lost.
//!
//! - `server`: the connection to one server, to a cluster, or to the primary of Sentinels.
//! - `exchange`: the messages to the script, and its answers.
//! - `call_event_exchange`: what members publish to each other about their calls, and `events`, its
//!   text.
//! - `account`: what the member knows of one resource, and which message is due.

mod account;
mod call_event_exchange;
mod call_event_text;
#[cfg(test)]
mod rates_tests;
mod script_messages;
mod server;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, from_redis_value_ref};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until, timeout};

use super::{Command, start_thread};
use crate::admission::ShareEvent;
use crate::clock::now;
use crate::config::{RedisUrl, ShareConfig};
use crate::error::Error;
use account::{Account, Answer, Outgoing};
use script_messages::Scripts;
use server::{Connection, Server};

/// Time between two heartbeats of a member.
const REMOTE_HEARTBEAT: Duration = Duration::from_secs(2);
/// Delay before the first attempt to connect again. Doubles up to [`MAX_RECONNECT_DELAY`].
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Maximum time to return the slots when the gate is dropped.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// The member of one gate. It runs in a thread of its own.
pub(super) struct Member {
    name: Arc<str>,
    server: Server,
    scripts: Scripts,
    commands: UnboundedReceiver<Command>,
    accounts: HashMap<Arc<str>, Account>,
    /// The accounts that were closed, and whose slots must be returned.
    closed: Vec<(Arc<str>, Account)>,
    /// The time that the store took for its last answer.
    last_took: Duration,
    /// Whether the log says that the store is lost.
    has_warned: bool,
    /// Dropped when all slots were returned. `None` while the process does not exit.
    exiting: Option<std::sync::mpsc::Sender<()>>,
}

/// A message that was sent, and its answer.
struct Answered {
    resource: Arc<str>,
    /// The name of the member under which it was sent.
    id: Arc<str>,
    sent_at: Instant,
    answer: RedisResult<Answer>,
}

/// Why a connection was given up.
enum End {
    /// An error of the store.
    Lost(RedisError),
    /// The gate was dropped, or the process exits.
    Dropped,
}

impl Member {
    /// Creates the member of a gate.
    ///
    /// # Errors
    /// `Config` if the password is missing.
    pub(super) fn new(
        share: &ShareConfig,
        url: &RedisUrl,
        commands: UnboundedReceiver<Command>,
    ) -> Result<Self, Error> {
        Ok(Self {
            name: share.name.clone(),
            server: Server::new(share, url)?,
            scripts: Scripts::new(),
            commands,
            accounts: HashMap::new(),
            closed: Vec::new(),
            last_took: Duration::ZERO,
            has_warned: false,
            exiting: None,
        })
    }

    /// Starts the thread of the member, which ends when the sender of its commands is dropped.
    pub(super) fn start(self) {
        start_thread(move || self.run());
    }

    async fn run(mut self) {
        let mut delay = RECONNECT_DELAY;
        loop {
            let (sender, pushes) = unbounded_channel();
            let end = match self.server.connect(sender).await {
                Ok(connection) => self.serve(&connection, pushes, &mut delay).await,
                Err(error) => End::Lost(error),
            };
            let End::Lost(error) = end else { return };
            self.warn(&error);
            self.accounts.values_mut().for_each(Account::on_lost);
            // Many members lose a store at the same time, and should not return at the same time.
            if self.wait_offline(delay.mul_f64(0.5 + fastrand::f64() / 2.0)).await {
                return;
            }
            delay = (2 * delay).min(MAX_RECONNECT_DELAY);
        }
    }

    /// Passes messages between the store and the schedulers. Resets `delay` when the store has
    /// answered all members: it may answer one kind of message, and refuse another one.
    async fn serve(
        &mut self,
        connection: &Connection,
        mut pushes: UnboundedReceiver<PushInfo>,
        delay: &mut Duration,
    ) -> End {
        let mut exchanges = JoinSet::new();
        let mut heartbeats = interval_at((now() + REMOTE_HEARTBEAT).into(), REMOTE_HEARTBEAT);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The claims of the members include what was reported in the meantime.
        self.apply_commands();
        loop {
            self.send_due(connection, &mut exchanges);
            tokio::select! {
                biased;
                Some(push) = pushes.recv() => {
                    if push.kind == PushKind::Disconnection && !connection.is_self_healing() {
                        return End::Lost((ErrorKind::Io, "the connection was closed").into());
                    }
                    self.on_push(&push);
                }
                command = self.commands.recv() => {
                    let is_dropped = command.is_none();
                    command.into_iter().for_each(|command| self.on_command(command));
                    self.apply_commands();
                    if is_dropped || self.exiting.is_some() {
                        // What is not returned in time is free when the lease ends.
                        let _ = timeout(LEAVE_TIMEOUT, self.leave_all(connection, exchanges)).await;
                        return End::Dropped;
                    }
                }
                Some(Ok(answered)) = exchanges.join_next(), if !exchanges.is_empty() => {
                    match self.on_answer(answered) {
                        Ok(()) if self.accounts.values().all(Account::is_joined) => {
                            *delay = RECONNECT_DELAY;
                            self.report_return();
                        }
                        Ok(()) => {}
                        Err(error) if connection.outlives(&error) => self.warn(&error),
                        Err(error) => return End::Lost(error),
                    }
                }
                _ = heartbeats.tick() => self.accounts.values_mut().for_each(Account::on_heartbeat),
                () = sleep_until_any(self.accounts.values().filter_map(Account::next_wake)) => {
                    self.accounts.values_mut().for_each(Account::on_time);
                }
            }
        }
    }

    /// Starts to send the messages that are due.
    fn send_due(&mut self, connection: &Connection, exchanges: &mut JoinSet<Answered>) {
        let mut send = |resource: &Arc<str>, account: &Account, outgoing: Outgoing| {
            let exchange = account.exchange(outgoing, connection.clone(), &self.scripts, self.last_took);
            let (resource, id) = (resource.clone(), account.id.clone());
            exchanges.spawn_local(async move {
                let (sent_at, answer) = exchange.await;
                Answered { resource, id, sent_at, answer }
            });
        };
        // After the answer to the last message, so that the store does not hear of the member
        // again.
        let (waiting, ready) =
            std::mem::take(&mut self.closed).into_iter().partition(|(_, account)| account.is_busy());
        self.closed = waiting;
        let ready: Vec<(Arc<str>, Account)> = ready;
        for (resource, account) in ready.iter().filter(|(_, account)| account.is_known()) {
            // An account that has replaced this one may have the same channel.
            let is_needed = self.accounts.values().any(|other| other.channel() == account.channel());
            let unneeded = (!is_needed).then(|| account.channel().to_owned());
            send(resource, account, account.last_outgoing(unneeded));
        }
        for (resource, account) in &mut self.accounts {
            if let Some(outgoing) = account.next_outgoing() {
                send(resource, account, outgoing);
            }
        }
    }

    /// Returns all slots.
    async fn leave_all(&mut self, connection: &Connection, mut exchanges: JoinSet<Answered>) {
        self.closed.extend(self.accounts.drain());
        self.send_due(connection, &mut exchanges);
        while let Some(answered) = exchanges.join_next().await {
            if let Ok(answered) = answered {
                let _ = self.on_answer(answered);
            }
            self.send_due(connection, &mut exchanges);
        }
    }

    /// Applies the commands of the schedulers while there is no connection. Returns `true` if the
    /// gate was dropped, or if the process exits.
    async fn wait_offline(&mut self, time: Duration) -> bool {
        let dropped = async {
            while self.exiting.is_none()
                && let Some(command) = self.commands.recv().await
            {
                self.on_command(command);
            }
        };
        let is_dropped = timeout(time, dropped).await.is_ok();
        self.closed.clear();
        is_dropped
    }

    fn apply_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.on_command(command);
        }
    }

    fn on_command(&mut self, command: Command) {
        let (resource, limit, event) = match command {
            Command::Event(resource, limit, event) => (resource, limit, event),
            Command::Exit(exiting) => {
                self.exiting = Some(exiting);
                return;
            }
        };
        match event {
            ShareEvent::Joined => {
                let account = Account::new(&self.name, self.server.database(), &resource, limit);
                if let Some(before) = self.accounts.insert(resource.clone(), account) {
                    self.closed.push((resource, before));
                }
            }
            ShareEvent::Left => {
                // Another target of this name may have joined in the meantime.
                if self.accounts.get(&resource).is_some_and(|account| account.limit.is_same(&limit)) {
                    self.closed.extend(self.accounts.remove_entry(&resource));
                }
            }
            _ => {
                if let Some(account) = self.accounts.get_mut(&resource) {
                    account.on_event(event);
                }
            }
        }
    }

    /// Applies what the store has pushed, and that a cluster has lost a connection, of which it is
    /// not known which channels it had.
    fn on_push(&mut self, push: &PushInfo) {
        if push.kind == PushKind::Disconnection {
            self.accounts.values_mut().for_each(Account::on_unsubscribed);
        }
        let [channel, pushed] = &push.data[..] else { return };
        let text = |value| from_redis_value_ref::<String>(value).ok();
        let (Some(channel), Some(pushed)) = (text(channel), text(pushed)) else { return };
        let account = self.accounts.values_mut().find(|account| account.channel() == channel);
        match account {
            Some(account) if push.kind == PushKind::SUnsubscribe => account.on_unsubscribed(),
            Some(account) => account.on_push(&pushed),
            None => {}
        }
    }

    /// Applies the answer to a message.
    ///
    /// # Errors
    /// The store has not answered, or the answer is an error.
    fn on_answer(&mut self, answered: Answered) -> RedisResult<()> {
        let Answered { resource, id, sent_at, answer } = answered;
        if answer.is_ok() {
            self.last_took = now().saturating_duration_since(sent_at);
        }
        let Some(account) = self.accounts.get_mut(&resource).filter(|account| account.id == id) else {
            let closed = self.closed.iter_mut().find(|(_, account)| account.id == id);
            closed.into_iter().for_each(|(_, account)| account.on_ignored_answer());
            return answer.map(drop);
        };
        let applied = answer.and_then(|answer| match answer {
            Answer::Reply(answer) => account.on_answer(&answer, sent_at).map(Some),
            Answer::Published { receivers } => {
                account.on_published(receivers);
                Ok(Some(()))
            }
            Answer::Unknown => Ok(None),
        });
        match applied {
            Ok(Some(())) => return Ok(()),
            // The store has lost its state, or has not heard this member for long.
            Ok(None) => account.on_forgotten(),
            Err(error) => {
                account.on_failed(&error, MAX_RECONNECT_DELAY);
                self.apply_commands();
                return Err(error);
            }
        }
        // The claim includes what was reported in the meantime.
        self.apply_commands();
        Ok(())
    }

    /// Logs that the store is back, if the log says that it is lost.
    fn report_return(&mut self) {
        if std::mem::take(&mut self.has_warned) {
            tracing::info!(share = &*self.name, "limits are shared again");
        }
    }

    fn warn(&mut self, error: &RedisError) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let (share, store) = (&*self.name, self.server.address());
            tracing::warn!(share, store, %error, "the store of shared limits is lost or cannot be used: until it can, this process keeps the slots that it has for some seconds, and then uses its part of each cap, or none with `strict`; check its address, the user in its URL, and `password_env`");
        }
    }
}

/// Waits until the first of `times`, forever if there is none.
async fn sleep_until_any(times: impl Iterator<Item = Instant>) {
    match times.min() {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}
