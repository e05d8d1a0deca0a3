//! What a member knows of one resource, and which message is due.
//!
//! There is at most one message on its way, so that messages arrive in order. In the meantime,
//! changes are merged.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::timeout;

use super::super::resource::{JoinMessage, SharedResource};
use super::REMOTE_HEARTBEAT;
use super::call_event_exchange::{CallEventExchange, channel_of};
use super::call_event_text::Published;
use super::script_messages::{Message, Publication, RatesReply, Scripts, SlotsReply, reply_for};
use super::server::Connection;
use crate::admission::ShareEvent;
use crate::clock::now;
use tidegate_share::rates::{Correction, Draw};
use tidegate_share::{LEASE_TIME, LeaseUpdate, Report, cool_down_ms};

/// Maximum time to wait for an answer, if the last one took little time. With the time between two
/// heartbeats, and that to join again, less than the time for which a store without a state grants
/// only a part.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The longest such time, at a store that is slow.
const SLOW_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to join. If many members join at the same time, each takes the store several
/// milliseconds.
pub(super) const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time over which a store's members spread their attempts to join it again, for each of them.
/// The script takes the longer to join one the more there are, with 1,000 up to 7 ms.
const JOIN_SPREAD: Duration = Duration::from_millis(8);
/// The largest power of two by which this time grows while members lose the store again soon after
/// they have joined.
const MAX_LOSSES: u32 = 3;
/// The number of members up to which they join again at the same time.
const JOIN_TOGETHER: usize = 32;
/// The maximum number of earlier names of a member that are removed when it joins.
const MAX_OLD_IDS: usize = 8;
/// The number of heartbeats with which a member subscribes once more after it has lost its channel.
/// While the client of a cluster connects again, it may replace a connection by another one without
/// notice.
const RESUBSCRIBE_COUNT: u8 = 2;

/// One resource of a member.
pub(super) struct Account {
    pub(super) limit: SharedResource,
    /// The key of the state. The others begin with it.
    key: Arc<str>,
    /// The name of the member at the store. A new one for each attempt to join, so that what is
    /// sent to an earlier one has no effect.
    pub(super) id: Arc<str>,
    /// The names in the last attempts, which the store may still know.
    old_ids: Vec<Arc<str>>,
    state: State,
    /// The latest report. `None` before the first attempt to join.
    report: Option<Report>,
    /// The totals of granted and of returned slots since the member has joined.
    granted: usize,
    returned: usize,
    is_report_due: bool,
    is_heartbeat_due: bool,
    /// Whether a member of rates must ask whether the store still knows it.
    is_alive_due: bool,
    /// Whether the member must subscribe to its channel before its next message.
    is_subscription_due: bool,
    /// The number of further heartbeats with which it subscribes.
    subscribes_again: u8,
    /// The division of the last push since the last answer, or 0. An answer about an earlier
    /// division was overtaken by the push.
    pushed: u64,
    /// The last division that the member knows of, at any store, or 0. For rates: the last change
    /// of charges in this epoch. A store with an earlier one has lost changes.
    division: u64,
    /// The end of a cool-down that the store does not know yet.
    cools_until: Option<Instant>,
    /// What is asked of the rates, and was not sent yet. Its corrections are in `unsent`.
    draw: Option<Draw>,
    /// Corrections of rates for the next message, with the time at which they had their age.
    unsent: Vec<(Instant, Correction)>,
    /// The corrections in the message that is on its way.
    unanswered: Vec<(Instant, Correction)>,
    /// Whether the member was forgotten and joins at once, so that a store that was not lost knows
    /// all that it has charged.
    is_forgotten: bool,
    /// The number of members at the store, as last heard.
    processes: usize,
    /// The number of times that the store was lost since the member had joined it for
    /// [`LEASE_TIME`].
    losses: u32,
    /// When the member has joined, or `None` if it has not.
    joined_at: Option<Instant>,
    /// When the store has last answered this member. `None` before its first answer.
    answered_at: Option<Instant>,
    /// The number of advances since the member has joined.
    advances: u64,
    /// The name of the state of the rates in the last answer. Empty before the first.
    epoch: String,
    /// What this member and the others publish about their calls.
    events: CallEventExchange,
    /// Whether the last message was for the script, so that events go before the next one.
    is_turn_of_events: bool,
    /// When the next report is due in any case, or the next attempt to join.
    pub(super) again_at: Option<Instant>,
    /// The earliest time of the next attempt to join after the store has answered with an error.
    /// `None` after another answer.
    retries_at: Option<Instant>,
}

/// A message that is due, with the subscriptions that change before it.
pub(super) struct Outgoing {
    message: Message,
    /// Whether the member subscribes to its channel.
    pub(super) subscribes: bool,
    /// The channel from which it receives nothing more.
    unneeded: Option<String>,
}

/// What the store answers to a message.
pub(super) enum Answer {
    /// The reply of the script to the member, as text.
    Reply(String),
    /// The store does not know the member.
    Unknown,
    /// The texts were passed on. `receivers` is the number of members that received the last one.
    Published { receivers: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The store does not know the member.
    Out,
    /// The first message is on its way.
    Joining,
    /// The store knows the member, and no message is on its way.
    Idle,
    /// A further message is on its way.
    Busy,
}

impl Account {
    /// Creates the account of a resource that was not joined yet, in a database of the store. The
    /// store sees only a hash of the names.
    pub(super) fn new(share: &str, database: u32, resource: &str, limit: SharedResource) -> Self {
        // All databases of a server have the same channels.
        let hash = digest(&SHA256, format!("{share}\0{database}\0{resource}").as_bytes());
        let hash: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        // In a cluster, what is in braces determines the server, which is one for all keys.
        let (key, id) = (Arc::<str>::from(format!("tidegate:4:{{{hash}}}")), new_id());
        let events = CallEventExchange::new(limit.clone(), key.clone(), id.clone());
        Self {
            limit,
            key,
            id,
            events,
            old_ids: Vec::new(),
            state: State::Out,
            report: None,
            granted: 0,
            returned: 0,
            is_report_due: false,
            is_heartbeat_due: false,
            is_alive_due: false,
            is_subscription_due: false,
            subscribes_again: 0,
            pushed: 0,
            division: 0,
            cools_until: None,
            draw: None,
            unsent: Vec::new(),
            unanswered: Vec::new(),
            is_forgotten: false,
            processes: 0,
            losses: 0,
            joined_at: None,
            answered_at: None,
            advances: 0,
            epoch: String::new(),
            is_turn_of_events: false,
            again_at: None,
            retries_at: None,
        }
    }

    /// Returns the channel to which the store pushes, or other members of the pool publish.
    pub(super) fn channel(&self) -> &str {
        self.events.channel()
    }

    /// Returns when something is due that no event announces, or `None` if nothing is.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.again_at.into_iter().chain(self.events.next_wake()).min()
    }

    /// Returns the message that is due, and takes it to be sent. The member subscribes when it
    /// joins, and when it may have lost its channel.
    pub(super) fn next_outgoing(&mut self) -> Option<Outgoing> {
        let message = self.next_message()?;
        let subscribes = std::mem::take(&mut self.is_subscription_due) || message.is_join();
        Some(Outgoing { message, subscribes, unneeded: self.old_channel() })
    }

    /// Returns the message that is due, and takes it to be sent.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        match self.state {
            State::Joining | State::Busy => None,
            State::Out if self.again_at.is_some() => None,
            State::Out => {
                let told = self.limit.join()?;
                (self.is_report_due, self.is_heartbeat_due) = (false, false);
                self.state = State::Joining;
                Some(match told {
                    JoinMessage::Calls(report) => {
                        (self.granted, self.returned) = (report.claim, 0);
                        // The role was that at an earlier store.
                        self.report = Some(Report { role: None, ..report });
                        Message::Join { report, replaces: self.old_ids.clone() }
                    }
                    JoinMessage::Rates(mut draw) => {
                        (self.draw, self.advances) = (None, 0);
                        self.unsent.extend(draw.pending.drain(..).map(|correction| (now(), correction)));
                        draw.pending = self.send_corrections();
                        if std::mem::take(&mut self.is_forgotten) {
                            draw.unknown_ms = 0;
                        }
                        Message::JoinRates { draw, epoch: self.epoch.clone(), replaces: self.old_ids.clone() }
                    }
                    JoinMessage::Placements(placements) => {
                        Message::JoinPool(self.events.first_publication(placements, &self.old_ids))
                    }
                })
            }
            State::Idle => {
                let message = match self.limit {
                    SharedResource::Rates(..) => self.next_of_rates(),
                    SharedResource::Replicas(_) => self.next_events(),
                    SharedResource::Calls(..) if self.is_turn_of_events => {
                        self.next_events().or_else(|| self.next_of_calls())
                    }
                    SharedResource::Calls(..) => self.next_of_calls().or_else(|| self.next_events()),
                }?;
                self.is_turn_of_events = message.publication().is_none();
                self.state = State::Busy;
                Some(message)
            }
        }
    }

    fn next_of_calls(&mut self) -> Option<Message> {
        let Self { granted, returned, .. } = *self;
        let cools_for = self.cools_until.take().map(|until| until.saturating_duration_since(now()));
        if let Some(left) = cools_for.filter(|left| !left.is_zero()) {
            Some(Message::CoolDown(cool_down_ms(left)))
        } else if std::mem::take(&mut self.is_report_due) {
            self.is_heartbeat_due = false;
            self.report.map(|report| Message::Report { report, granted, returned })
        } else if std::mem::take(&mut self.is_heartbeat_due) {
            Some(Message::Heartbeat { granted, returned })
        } else {
            None
        }
    }

    fn next_events(&mut self) -> Option<Message> {
        self.events.next_publication().map(Message::Publish)
    }

    fn next_of_rates(&mut self) -> Option<Message> {
        let is_heartbeat_due = std::mem::take(&mut self.is_heartbeat_due);
        let is_alive_due = std::mem::take(&mut self.is_alive_due);
        if let Some(draw) = self.draw.take() {
            return Some(Message::Draw(Draw { corrections: self.send_corrections(), ..draw }));
        }
        let alive = is_alive_due.then_some(Message::RatesAlive);
        if is_heartbeat_due { Some(Message::RatesHeartbeat) } else { alive }
    }

    /// Returns the corrections for the next message, with their age.
    fn send_corrections(&mut self) -> Vec<Correction> {
        let time = now();
        self.unanswered = std::mem::take(&mut self.unsent);
        let aged = |(at, correction): &(Instant, Correction)| {
            let passed_ms = time.saturating_duration_since(*at).as_millis() as u64;
            Correction { age_ms: correction.age_ms.saturating_add(passed_ms), ..correction.clone() }
        };
        self.unanswered.iter().map(aged).collect()
    }

    /// Returns the message with which the member leaves. The member receives nothing more
    /// from the channel `unneeded`.
    pub(super) fn last_outgoing(&self, unneeded: Option<String>) -> Outgoing {
        let message = match self.limit {
            SharedResource::Calls(..) => Message::Leave,
            SharedResource::Rates(..) => Message::LeaveRates,
            SharedResource::Replicas(_) => Message::Publish(self.events.last_publication()),
        };
        Outgoing { message, subscribes: false, unneeded }
    }

    /// Returns the channel of the last attempt to join, or `None` if there was none or the store
    /// has answered since.
    fn old_channel(&self) -> Option<String> {
        self.old_ids.last().map(|id| channel_of(&self.key, id))
    }

    /// Sends a message. Returns when it was sent, and the answer. `last_took` is the time that the
    /// store took for its last answer.
    ///
    /// A store that is slow, because many members join, would be slower still if they gave up early
    /// and joined again.
    pub(super) fn exchange(
        &self,
        outgoing: Outgoing,
        mut connection: Connection,
        scripts: &Scripts,
        last_took: Duration,
    ) -> impl Future<Output = (Instant, RedisResult<Answer>)> + 'static {
        let Outgoing { message, subscribes, unneeded } = outgoing;
        let (key, channel) = (self.key.clone(), self.channel().to_owned());
        let silence = self.answered_at.map_or(Duration::ZERO, |at| now().saturating_duration_since(at));
        let arguments = message.arguments(&self.id, self.division, silence);
        let script = scripts.of(&message);
        let usually = (3 * last_took).clamp(ANSWER_TIMEOUT, SLOW_ANSWER_TIMEOUT);
        let within = if message.is_join() { JOIN_TIMEOUT } else { usually };
        let mut subscriber = connection.clone();
        let unsubscribing = async move {
            if let Some(unneeded) = unneeded {
                // What is still pushed there after an error is ignored.
                let _ = subscriber.unsubscribe(&unneeded).await;
            }
        };
        let answering = async move {
            if subscribes && let Err(error) = connection.subscribe(&channel).await {
                return (now(), Err(error));
            }
            let sent_at = now();
            let Some(Publication { channels, texts }) = message.publication() else {
                let answer = connection.run(&script, &key, &arguments).await;
                return (sent_at, answer.map(|answer| answer.map_or(Answer::Unknown, Answer::Reply)));
            };
            let mut receivers = 0;
            for (channel, text) in
                channels.iter().flat_map(|channel| texts.iter().map(move |text| (channel, text)))
            {
                match connection.publish(channel, text).await {
                    Ok(number) => receivers = number,
                    Err(error) => return (sent_at, Err(error)),
                }
            }
            (sent_at, Ok(Answer::Published { receivers }))
        };
        async move {
            let began = now();
            let both = async { tokio::join!(unsubscribing, answering).1 };
            let late = |_| (began, Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            timeout(within, both).await.unwrap_or_else(late)
        }
    }

    /// Returns `true` if a message was sent and is not answered.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, State::Joining | State::Busy)
    }

    /// Returns `true` if the store may know the member.
    pub(super) fn is_known(&self) -> bool {
        self.state != State::Out
    }

    /// Returns `true` if the store has answered the message that joins.
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.state, State::Idle | State::Busy)
    }

    /// Records that the last message was answered, when the answer does not matter any more.
    pub(super) fn on_ignored_answer(&mut self) {
        self.state = State::Idle;
    }

    /// Applies an event of the limit. What is reported or asked while the member is out is part of
    /// what joins it.
    pub(super) fn on_event(&mut self, event: ShareEvent) {
        let is_out = self.state == State::Out;
        match event {
            ShareEvent::Reported(report) if !is_out => {
                self.returned += report.returned;
                self.report = Some(report);
                self.is_report_due = true;
            }
            ShareEvent::Drawn(mut draw) => {
                self.unsent.extend(draw.corrections.drain(..).map(|correction| (now(), correction)));
                if !is_out {
                    self.draw = Some(draw);
                }
            }
            ShareEvent::CoolingUntil(until) => self.cools_until = self.cools_until.max(Some(until)),
            ShareEvent::Observed if !is_out => self.events.on_events(),
            ShareEvent::Reported(_) | ShareEvent::Observed | ShareEvent::Joined | ShareEvent::Left => {}
        }
    }

    /// Lets a heartbeat be sent, and returns idle slots. At rates, only a member that has charges
    /// and was silent sends one: if the store has lost its state, the member must tell it what it
    /// has charged.
    pub(super) fn on_heartbeat(&mut self) {
        if self.state != State::Out {
            let is_silent = self.answered_at.is_none_or(|at| now() >= at + REMOTE_HEARTBEAT / 2);
            self.is_heartbeat_due |= matches!(self.limit, SharedResource::Calls(..));
            self.is_alive_due |= is_silent && self.limit.has_charges();
            if let Some(left) = self.subscribes_again.checked_sub(1) {
                self.subscribes_again = left;
                self.request_subscription();
            }
            self.events.on_heartbeat();
            self.limit.on_heartbeat();
        }
    }

    /// Subscribes to the channel again, which the member may have lost. A member that has not
    /// joined does nothing, because it subscribes when it joins.
    pub(super) fn on_unsubscribed(&mut self) {
        if self.state != State::Out {
            self.subscribes_again = RESUBSCRIBE_COUNT;
            self.request_subscription();
        }
    }

    /// Lets a message be due, before which the member subscribes. The answer tells what was pushed
    /// meanwhile.
    fn request_subscription(&mut self) {
        self.is_subscription_due = true;
        match self.limit {
            SharedResource::Calls(..) | SharedResource::Rates(..) => self.is_heartbeat_due = true,
            SharedResource::Replicas(_) => self.events.request_sign_of_life(),
        }
    }

    /// Lets what is due be sent, or another attempt to join be made, if its time has come.
    pub(super) fn on_time(&mut self) {
        let time = now();
        self.events.on_time(time);
        let has_come = self.again_at.take_if(|at| *at <= time).is_some();
        match self.limit {
            // If a member wants nothing, slots that are free now change nothing for it.
            SharedResource::Calls(..) => {
                self.is_report_due |= has_come && self.report.is_some_and(|report| report.want > 0);
            }
            SharedResource::Rates(..) => self.is_heartbeat_due |= has_come,
            SharedResource::Replicas(_) => {}
        }
    }

    /// Records that a text was published, and how many members received it.
    pub(super) fn on_published(&mut self, receivers: u32) {
        self.events.on_published(receivers);
        (self.state, self.retries_at) = (State::Idle, None);
        self.old_ids.clear();
    }

    /// Applies an answer to a message that was sent at `sent_at`.
    ///
    /// # Errors
    /// The answer is not what the script returns, or is to another message.
    pub(super) fn on_answer(&mut self, answer: &str, sent_at: Instant) -> RedisResult<()> {
        let answer = reply_for(answer, &self.id)?;
        let again = match &self.limit {
            SharedResource::Rates(..) => {
                if let Ok(members) = answer.parse() {
                    self.limit.on_alive(sent_at);
                    self.set_processes(members);
                    // A time that has just come counts still.
                    let left =
                        |at: Instant| at.saturating_duration_since(now()).max(Duration::from_millis(1));
                    self.again_at.map_or(Duration::ZERO, left)
                } else {
                    let reply = RatesReply::parse(answer)?;
                    self.limit.on_alive(sent_at);
                    self.apply_rates(&reply)
                }
            }
            SharedResource::Calls(..) | SharedResource::Replicas(_) => {
                let reply = SlotsReply::parse(answer)?;
                self.limit.on_alive(sent_at);
                self.division = self.division.max(reply.division);
                if reply.division >= std::mem::take(&mut self.pushed) {
                    self.apply(&reply);
                }
                reply.again
            }
        };
        (self.state, self.retries_at) = (State::Idle, None);
        self.joined_at.get_or_insert_with(now);
        self.unanswered.clear();
        self.answered_at = Some(now());
        self.old_ids.clear();
        self.again_at = Some(again).filter(|again| !again.is_zero()).map(|again| now() + again);
        Ok(())
    }

    /// Applies what the store has pushed, or another member has published. Ignores anything else.
    pub(super) fn on_push(&mut self, pushed: &str) {
        if let Some(published) = Published::parse(pushed) {
            self.events.on_text(&published);
        } else if let SharedResource::Rates(..) = self.limit {
            if let Ok(reply) = RatesReply::parse(pushed)
                && reply.advances > self.advances
            {
                self.again_at = None;
                self.apply_rates(&reply);
            }
        } else if let Ok(reply) = SlotsReply::parse(pushed) {
            self.pushed = reply.division;
            self.division = self.division.max(reply.division);
            self.apply(&reply);
        }
    }

    /// Applies the last advance, unless it is known. Returns when to ask again.
    fn apply_rates(&mut self, reply: &RatesReply) -> Duration {
        if self.epoch != reply.epoch {
            (self.epoch, self.division) = (reply.epoch.clone(), 0);
        }
        self.division = self.division.max(reply.division);
        self.set_processes(reply.advance.members);
        if reply.advances > self.advances {
            self.limit.on_advance(&reply.advance, reply.age);
        }
        self.advances = self.advances.max(reply.advances);
        reply.again
    }

    fn set_processes(&mut self, processes: usize) {
        self.processes = processes;
        self.limit.set_processes(processes);
    }

    fn apply(&mut self, reply: &SlotsReply) {
        let granted = reply.granted.saturating_sub(self.granted);
        self.granted += granted;
        self.processes = reply.update.members;
        if let Some(report) = &mut self.report {
            report.want = report.want.saturating_sub(granted);
        }
        // A member with a fixed limit publishes nothing.
        let is_adaptive = self.report.is_some_and(|report| report.adaptive.is_some());
        self.events.set_observers(if is_adaptive { &reply.observers } else { &[] });
        let appointment = reply.appointment(&self.id);
        let update = LeaseUpdate { granted, appointment, ..reply.update };
        self.limit.on_lease_update(update);
        if reply.cools > Duration::ZERO {
            let until = now() + reply.cools;
            self.cools_until.take_if(|unknown| *unknown <= until);
            self.limit.on_cool_down(until);
        }
    }

    /// Returns when to join again, or `None` if at once. All members of a store lose it at the same
    /// time. If many joined at the same time, it would answer too late, and they would join again
    /// and again.
    fn joins_again_at(&self) -> Option<Instant> {
        let members = u32::try_from(self.processes).unwrap_or(u32::MAX);
        let time = JOIN_SPREAD.saturating_mul(members.saturating_mul(1 << self.losses.min(MAX_LOSSES)));
        (self.processes > JOIN_TOGETHER).then(|| now() + time.mul_f64(fastrand::f64()))
    }

    /// Records that the store does not know the member any more, so that it has ignored the last
    /// message.
    pub(super) fn on_forgotten(&mut self) {
        let was_silent = self.answered_at.is_some_and(|at| now() >= at + LEASE_TIME);
        self.unsent.append(&mut self.unanswered);
        self.on_lost();
        if was_silent {
            // The store was not lost, so the others do not join as well.
            self.again_at = None;
        }
        // A member that waits may charge more.
        self.is_forgotten = self.again_at.is_none();
    }

    /// Records that the store has not answered a message, or with an error. The member joins again
    /// after `delay`. If the store has answered, this also holds for the next connection.
    pub(super) fn on_failed(&mut self, error: &RedisError, delay: Duration) {
        let retries_at = Some(now() + delay);
        if error.kind() != ErrorKind::Io {
            self.retries_at = retries_at;
        }
        self.on_lost();
        self.again_at = self.again_at.max(retries_at);
    }

    /// Records that the store is lost. It may have applied the message that it has not answered.
    pub(super) fn on_lost(&mut self) {
        // If the store counts a charge twice, no limit is exceeded.
        let adds = |(_, correction): &(Instant, Correction)| correction.amounts.iter().all(|it| *it >= 0);
        self.unsent.extend(self.unanswered.drain(..).filter(adds));
        (self.is_forgotten, self.answered_at) = (false, None);
        if self.state != State::Out {
            self.old_ids.push(std::mem::replace(&mut self.id, new_id()));
            let excess = self.old_ids.len().saturating_sub(MAX_OLD_IDS);
            self.old_ids.drain(..excess);
        }
        let had_lease = self.joined_at.take().is_some_and(|at| now() >= at + LEASE_TIME);
        if had_lease {
            self.losses = 0;
        } else if self.state != State::Out {
            self.losses += 1;
        }
        self.state = State::Out;
        (self.pushed, self.is_subscription_due) = (0, false);
        self.again_at = self.joins_again_at().max(self.retries_at);
        self.events = CallEventExchange::new(self.limit.clone(), self.key.clone(), self.id.clone());
        self.limit.on_lost();
    }
}

/// Returns a name that no other member has.
fn new_id() -> Arc<str> {
    format!("{:032x}", fastrand::u128(..)).into()
}
