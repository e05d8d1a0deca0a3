//! The messages to the script, and its answers.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisResult, Script};

use tidegate_share::{LEASE_TIME, LeaseUpdate, MAX_CAP, MAX_COOL_DOWN, MIN_PART, Report, WEIGHTS};

/// The script without its settings. See `exchange.lua`.
const SCRIPT: &str = include_str!("exchange.lua");
/// The clock of the store.
const WALL: &str = "local time = redis.call('TIME') local wall = time[1] + time[2] / 1e6";
/// Time for which a store without a state grants only a part of a cap, because the members of a lost
/// state may still use their slots: longer than a heartbeat, and than it takes to connect again.
const GRACE_TIME: Duration = Duration::from_secs(4);
/// The longest time by which the clock of a resource advances between two messages.
const MAX_STEP: Duration = Duration::from_secs(3);
/// Time after the last message until the store forgets a resource.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Returns the script of an exchange.
pub(super) fn script() -> Script {
    script_with(WALL, GRACE_TIME)
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

/// A message of a member about one resource.
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
}

impl Message {
    /// Returns the arguments of the script.
    pub(super) fn arguments(&self, member: &str) -> Vec<String> {
        let fields = |kind: &str, granted: usize, returned: usize, report: &Report| {
            let Report { cap, weight, want, .. } = report;
            let numbers = [granted, returned, *cap].map(|number| number.to_string());
            let mut arguments = vec![member.to_owned(), kind.to_owned()];
            arguments.extend(numbers);
            arguments.extend([weight.to_string(), want.to_string()]);
            arguments
        };
        let only = |kind: &str| vec![member.to_owned(), kind.to_owned()];
        match self {
            Self::Join { report, replaces } => {
                let mut arguments = fields("join", report.claim, 0, report);
                arguments.extend(replaces.iter().map(ToString::to_string));
                arguments
            }
            Self::Report { report, granted, returned } => fields("report", *granted, *returned, report),
            Self::Heartbeat { granted, returned } => {
                let mut arguments = only("heartbeat");
                arguments.extend([granted, returned].map(ToString::to_string));
                arguments
            }
            Self::CoolDown(for_ms) => {
                let mut arguments = only("cool_down");
                arguments.push(for_ms.to_string());
                arguments
            }
            Self::Leave => only("leave"),
        }
    }
}

/// What the store tells a member: in its answers, and when it pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Situation {
    /// The slots that were granted since the member joined.
    pub(super) granted: usize,
    /// The number of the division of which this tells. Later ones have larger numbers.
    pub(super) division: u64,
    /// The rest, without newly granted slots.
    pub(super) update: LeaseUpdate,
    /// The remaining time of a cool-down, or zero.
    pub(super) cools: Duration,
    /// The time after which slots may be free without a message, or zero.
    pub(super) again: Duration,
}

impl Situation {
    /// Parses an answer.
    ///
    /// # Errors
    /// The text is not what the script returns.
    pub(super) fn parse(text: &str) -> RedisResult<Self> {
        let malformed = || (ErrorKind::UnexpectedReturnType, "the answer is malformed").into();
        let numbers: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
        let numbers = numbers.map_err(|_| malformed())?;
        let [granted, short, fair, cap, members, total, division, cools, again] = numbers[..] else {
            return Err(malformed());
        };
        let number =
            |number: u64| u32::try_from(number).map(|number| number as usize).map_err(|_| malformed());
        let (granted, fair, cap) = (number(granted)?, number(fair)?, number(cap)?);
        let (members, total) = (number(members)?, number(total)?);
        if cap == 0 || members == 0 {
            return Err(malformed());
        }
        let update = LeaseUpdate {
            granted: 0,
            others_short: short != 0,
            fair,
            cap,
            members,
            survivors: members - 1,
            total,
        };
        let [cools, again] = [cools, again].map(|time| Duration::from_millis(time).min(MAX_COOL_DOWN));
        Ok(Self { granted, division, update, cools, again })
    }
}
