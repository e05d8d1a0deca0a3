//! The messages to the script, and its answers.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisResult, Script};

use tidegate_share::rates::{
    Advance, Amounts, BINS, Draw, LONG_WINDOW_MS, MAX_AMOUNT, RateLimit, TRAVEL_BINS, WINDOWS_MS,
};
use tidegate_share::{
    Appointment, LEASE_TIME, LeaseTimes, LeaseUpdate, LimitRole, MAX_CAP, MAX_COOL_DOWN, MIN_PART, Report,
    WEIGHTS,
};

/// The script for slots without its settings. See `slots.lua`.
const SCRIPT: &str = include_str!("slots.lua");
/// The script for rates without its settings. See `rates.lua`.
const DRAW_SCRIPT: &str = include_str!("rates.lua");
/// The clock of the store.
const WALL: &str = "local time = redis.call('TIME') local wall = time[1] + time[2] / 1e6";
/// Time for which a store without a state grants only a part of a cap, because the members of a
/// lost state may still use their slots: longer than a heartbeat, and than it takes to connect
/// again. Begins again with each member that returns, at most for [`LEASE_TIME`] longer.
const GRACE_TIME: Duration = Duration::from_secs(4);
/// The longest time by which the clock of a resource advances between two messages.
const MAX_STEP: Duration = Duration::from_secs(3);
/// The least time after which a member that is not the first in line asks again, in milliseconds.
const ASKS_AFTER_MS: u64 = 250;
/// The maximum time after which a member asks again, in milliseconds. The store forgets silent
/// members.
const ASKS_WITHIN_MS: u64 = 2_000;
/// The part of a burst that is available in a store without a state, which may have lost it. The
/// members tell within seconds what they have used. The first call is available in any case.
const FIRST_BURST: f64 = 0.25;
/// The longest time by which the clock of rates advances between two messages, unless the member
/// that sends was silent for longer.
const MAX_RATES_STEP: Duration = Duration::from_secs(5);
/// The time between two members that ask again, in milliseconds.
const ASK_SPREAD_MS: u64 = 20;
/// Time after the last message until the store forgets a resource.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The scripts of the store.
#[derive(Clone)]
pub(super) struct Scripts {
    slots: Arc<Script>,
    rates: Arc<Script>,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let rates = draw_script_with(WALL, LeaseTimes::REMOTE.advance, FIRST_BURST);
        Self { slots: Arc::new(script_with(WALL, GRACE_TIME)), rates: Arc::new(rates) }
    }

    /// Returns the script that a message is for.
    pub(super) fn of(&self, message: &Message) -> Arc<Script> {
        match message {
            Message::JoinRates { .. }
            | Message::Draw(_)
            | Message::RatesHeartbeat
            | Message::RatesAlive
            | Message::LeaveRates => self.rates.clone(),
            _ => self.slots.clone(),
        }
    }
}

/// Returns the script for rates with another clock, the longest time for which an advance may be
/// used, and the part of the burst that is available at first.
pub(super) fn draw_script_with(wall: &str, longest: Duration, first_burst: f64) -> Script {
    let times = [LEASE_TIME, MAX_RATES_STEP].map(|time| time.as_secs_f64().to_string()).join(", ");
    let (kept, longest) = (KEPT_FOR.as_millis(), longest.as_millis());
    let (min_weight, max_weight) = WEIGHTS;
    let (shortest_window, longest_window) = WINDOWS_MS;
    Script::new(&format!(
        "{wall}\nlocal LEASE_TIME, MAX_STEP = {times}\n\
         local KEPT_MS, LONGEST_STOCK_MS = {kept}, {longest}\n\
         local LONG_WINDOW_MS = {LONG_WINDOW_MS}\n\
         local FIRST_BURST, ASKS_WITHIN_MS = {first_burst}, {ASKS_WITHIN_MS}\n\
         local ASKS_AFTER_MS, ASK_SPREAD_MS = {ASKS_AFTER_MS}, {ASK_SPREAD_MS}\n\
         local BINS, TRAVEL_BINS, MAX_AMOUNT = {BINS}, {TRAVEL_BINS}, {MAX_AMOUNT}\n\
         local MIN_WINDOW_MS, MAX_WINDOW_MS = {shortest_window}, {longest_window}\n\
         local MIN_WEIGHT, MAX_WEIGHT = {min_weight}, {max_weight}\n{DRAW_SCRIPT}"
    ))
}

/// Returns the script with another clock and grace time.
pub(super) fn script_with(wall: &str, grace: Duration) -> Script {
    let times = [LEASE_TIME, grace, MAX_STEP].map(|time| time.as_secs_f64().to_string()).join(", ");
    let kept = KEPT_FOR.as_millis();
    let cool_down = MAX_COOL_DOWN.as_millis();
    let (min_weight, max_weight) = WEIGHTS;
    Script::new(&format!(
        "{wall}\nlocal LEASE_TIME, GRACE_TIME, MAX_STEP = {times}\n\
         local KEPT_MS, MAX_COOL_DOWN_MS = {kept}, {cool_down}\n\
         local MIN_PART, MAX_CAP = {MIN_PART}, {MAX_CAP}\n\
         local MIN_WEIGHT, MAX_WEIGHT = {min_weight}, {max_weight}\n{SCRIPT}"
    ))
}

/// Texts for other members, and the channels to which each is published.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Publication {
    pub(super) channels: Vec<String>,
    pub(super) texts: Vec<String>,
}

/// A message of a member about one resource: to the script, or through the store to other members.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// Joins the resource, in place of the members `replaces`. The claim counts as granted.
    Join {
        report: Report,
        replaces: Vec<Arc<str>>,
    },
    /// Reports the totals of granted and of returned slots, and what the member needs.
    Report {
        report: Report,
        granted: usize,
        returned: usize,
    },
    /// Reports the totals of granted and of returned slots.
    Heartbeat {
        granted: usize,
        returned: usize,
    },
    /// The provider asked callers to wait for so many milliseconds.
    CoolDown(u64),
    Leave,
    /// Joins rates, in place of the members `replaces`. A store of the `epoch` knows what was
    /// charged before it was lost. Any other store needs all past charges.
    JoinRates {
        draw: Draw,
        epoch: String,
        replaces: Vec<Arc<str>>,
    },
    Draw(Draw),
    RatesHeartbeat,
    /// A heartbeat of a member of rates that wants nothing, so that the answer is the number of
    /// members only.
    RatesAlive,
    LeaveRates,
    /// Joins a pool, and tells its other members.
    JoinPool(Publication),
    Publish(Publication),
}

impl Message {
    /// Returns `true` if the member joins.
    pub(super) fn is_join(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::JoinRates { .. } | Self::JoinPool(_))
    }

    /// Returns what is published, or `None` if the message is for the script.
    pub(super) fn publication(&self) -> Option<&Publication> {
        match self {
            Self::JoinPool(publication) | Self::Publish(publication) => Some(publication),
            _ => None,
        }
    }

    /// Returns the arguments of the script. `division` is the number of the last division of slots,
    /// or of the last change of charges to rates, that the member knows of, or 0. `silence` is the
    /// time since the store has last answered a member of rates.
    pub(super) fn arguments(&self, member: &str, division: u64, silence: Duration) -> Vec<String> {
        let numbers = |kind: &str, granted: usize, returned: usize| {
            let numbers = [granted.to_string(), returned.to_string(), division.to_string()];
            [member.to_owned(), kind.to_owned()].into_iter().chain(numbers).collect::<Vec<_>>()
        };
        let fields = |kind: &str, granted: usize, returned: usize, report: &Report| {
            let Report { cap, weight, want, adaptive, role, .. } = report;
            let mut arguments = numbers(kind, granted, returned);
            arguments.extend([cap.to_string(), weight.to_string(), want.to_string()]);
            arguments.push(adaptive.map_or_else(|| "-".to_owned(), |slots| slots.to_string()));
            let role = role.map_or("-", |role| match role {
                LimitRole::Follower => "follower",
                LimitRole::Deputy => "deputy",
                LimitRole::Leader => "leader",
            });
            arguments.push(role.to_owned());
            arguments
        };
        let only = |kind: &str| vec![member.to_owned(), kind.to_owned()];
        let of_rates = |kind: &str| {
            let silent_ms = silence.as_micros().div_ceil(1_000);
            vec![member.to_owned(), kind.to_owned(), division.to_string(), silent_ms.to_string()]
        };
        match self {
            Self::Join { report, replaces } => {
                let mut arguments = fields("join", report.claim, 0, report);
                arguments.extend(replaces.iter().map(ToString::to_string));
                arguments
            }
            Self::Report { report, granted, returned } => fields("report", *granted, *returned, report),
            Self::Heartbeat { granted, returned } => numbers("heartbeat", *granted, *returned),
            Self::CoolDown(for_ms) => {
                let mut arguments = only("cool_down");
                arguments.push(for_ms.to_string());
                arguments
            }
            Self::Leave => only("leave"),
            Self::LeaveRates => of_rates("leave"),
            Self::JoinRates { draw, epoch, replaces } => {
                let mut arguments = only("join");
                arguments.extend([division.to_string(), replaces.join(","), epoch.clone()]);
                arguments.extend([draw.unknown_ms.to_string(), draw.corrections.len().to_string()]);
                arguments.extend(draw_fields(draw));
                arguments
            }
            Self::Draw(draw) => {
                let mut arguments = of_rates("draw");
                arguments.extend(draw_fields(draw));
                arguments
            }
            Self::RatesHeartbeat => of_rates("heartbeat"),
            Self::RatesAlive => of_rates("alive"),
            Self::JoinPool(_) | Self::Publish(_) => Vec::new(),
        }
    }
}

/// Returns the arguments for a draw.
fn draw_fields(draw: &Draw) -> Vec<String> {
    let count = draw.limits.len();
    let mut fields = vec![draw.number.to_string(), draw.weight.to_string(), count.to_string()];
    for limit in &draw.limits {
        let RateLimit { window_ms, per_window, per_second, burst_ms } = limit;
        fields.extend([window_ms, per_window].map(ToString::to_string));
        fields.extend([per_second.to_string(), burst_ms.to_string()]);
    }
    for amounts in [&draw.want, &draw.least] {
        // Nothing is wanted if there are none.
        fields.extend((0..count).map(|nth| amounts.get(nth).unwrap_or(&0).to_string()));
    }
    for correction in draw.corrections.iter().chain(&draw.pending) {
        fields.push(correction.age_ms.to_string());
        fields.extend(correction.amounts.iter().map(ToString::to_string));
    }
    fields
}

/// Returns the reply in an answer of a script to `member`. The name of the member precedes it.
///
/// The client of a cluster may return the answer to another message: a server that does not serve a
/// channel any more tells this without being asked, and the client takes it for an answer.
///
/// # Errors
/// The answer is to another member.
pub(super) fn reply_for<'a>(answer: &'a str, member: &str) -> RedisResult<&'a str> {
    let reply = answer.strip_prefix(member).and_then(|rest| rest.strip_prefix(' '));
    reply.ok_or_else(|| (ErrorKind::UnexpectedReturnType, "the answer is to another message").into())
}

/// What the store tells a member about rates: in its answers, and when it pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RatesReply {
    /// The number of advances since the member joined.
    pub(super) advances: u64,
    /// The last one.
    pub(super) advance: Advance,
    /// The time since the last one.
    pub(super) age: Duration,
    /// The name of the state. A store that has lost its state or its last changes has another one.
    pub(super) epoch: String,
    /// The number of the last change of what is charged in this state.
    pub(super) division: u64,
    /// The time after which the next advance may fit, or zero.
    pub(super) again: Duration,
}

impl RatesReply {
    /// Parses an answer.
    ///
    /// # Errors
    /// The text is not what the script returns.
    pub(super) fn parse(text: &str) -> RedisResult<Self> {
        let parsed = || {
            let mut fields = text.split(' ');
            let mut next = || fields.next();
            let advances = next()?.parse().ok()?;
            let age = Duration::from_millis(next()?.parse().ok()?);
            let number = next()?.parse().ok()?;
            let amounts = parse_amounts(next()?)?;
            let charged = parse_amounts(next()?)?;
            let members = next()?.parse().ok()?;
            let epoch = next()?.to_owned();
            let division = next()?.parse().ok()?;
            let again = Duration::from_millis(next()?.parse().ok()?).min(MAX_COOL_DOWN);
            let advance = Advance { number, amounts, members, charged };
            Some(Self { advances, advance, age, epoch, division, again })
        };
        parsed().ok_or_else(|| (ErrorKind::UnexpectedReturnType, "the answer is malformed").into())
    }
}

/// Parses one amount for each limit, or `-` for none.
fn parse_amounts(text: &str) -> Option<Amounts> {
    let amounts = text.split(',').filter(|amount| *amount != "-");
    amounts.map(|amount| amount.parse().ok()).collect()
}

/// What the store tells a member about slots: in its answers, and when it pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotsReply {
    /// The slots that were granted since the member joined.
    pub(super) granted: usize,
    /// The number of the division of which this tells. Later ones have larger numbers.
    pub(super) division: u64,
    /// The rest, without newly granted slots and without an appointment.
    pub(super) update: LeaseUpdate,
    /// The number of times that observers of an adaptive limit were appointed.
    term: u64,
    /// The names of the leader and of the deputy of an adaptive limit, as far as there are any.
    pub(super) observers: Vec<Arc<str>>,
    /// The remaining time of a cool-down, or zero.
    pub(super) cools: Duration,
    /// The time after which slots may be free without a message, or zero.
    pub(super) again: Duration,
}

impl SlotsReply {
    /// Parses an answer.
    ///
    /// # Errors
    /// The text is not what the script returns.
    pub(super) fn parse(text: &str) -> RedisResult<Self> {
        let malformed = || (ErrorKind::UnexpectedReturnType, "the answer is malformed").into();
        let fields: Vec<&str> = text.split(' ').collect();
        let [numbers @ .., leader, deputy, cools, again] = &fields[..] else { return Err(malformed()) };
        let numbers: Result<Vec<u64>, _> =
            numbers.iter().chain([cools, again]).map(|field| field.parse()).collect();
        let numbers = numbers.map_err(|_| malformed())?;
        let [granted, short, fair, cap, members, total, division, term, cools, again] = numbers[..] else {
            return Err(malformed());
        };
        let observers = [leader, deputy].into_iter().filter(|name| **name != "-");
        let observers = observers.map(|name| Arc::from(*name)).collect();
        let number =
            |number: u64| u32::try_from(number).map(|number| number as usize).map_err(|_| malformed());
        let (granted, fair, cap) = (number(granted)?, number(fair)?, number(cap)?);
        let (members, total) = (number(members)?, number(total)?);
        if cap == 0 || members == 0 || short > 2 {
            return Err(malformed());
        }
        let update = LeaseUpdate {
            granted: 0,
            others_short: short > 0,
            others_owed: short == 2,
            fair,
            cap,
            members,
            survivors: members - 1,
            total,
            appointment: None,
        };
        let [cools, again] = [cools, again].map(|time| Duration::from_millis(time).min(MAX_COOL_DOWN));
        Ok(Self { granted, division, update, term, observers, cools, again })
    }

    /// Returns what a member does for an adaptive limit, or `None` if the limit is fixed.
    pub(super) fn appointment(&self, member: &str) -> Option<Appointment> {
        let role = LimitRole::from_position(self.observers.iter().position(|observer| &**observer == member));
        (!self.observers.is_empty()).then_some(Appointment { role, term: self.term })
    }
}
