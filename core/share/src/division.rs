//! The division of one resource among its members. See [the crate](crate).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use super::limit_role::{Appointment, LimitRole};
use super::member::{MemberId, Presence, WEIGHTS};
use super::{LeaseUpdate, REJOIN_TIME, Report};

/// The smallest part of a contended slot that a member may be entitled to, so that none waits long.
pub const MIN_PART: f64 = 0.05;
/// The largest cap that a member may have: that of the configuration. Others are cut.
pub const MAX_CAP: usize = 65_536;

/// The broker before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none, or its members had ended.
    None,
    /// The process of the broker has ended. Its members may still use their leases.
    Died,
    /// The process of the broker exists, but does not answer. Its calls may still run, so its slots
    /// are withheld until [`Broker::release_withheld`](crate::Broker::release_withheld).
    Stopped,
}

/// The leases of one resource.
#[derive(Debug)]
pub(crate) struct Division {
    accounts: BTreeMap<MemberId, Account>,
    /// The largest service of a member at a contended grant. See [`Account::service`].
    virtual_time: f64,
    /// When the service of the members was last updated.
    served_until: Instant,
    /// The members of an earlier broker that have not rejoined, or `None` if none is missing.
    missing: Option<Missing>,
    withheld: Withheld,
    /// The members that observe the calls of all, if the limit is adaptive: the leader and the
    /// deputy.
    observers: Vec<MemberId>,
    /// The number of times that observers were appointed.
    term: u64,
    /// What the leader has found, or `None` if the limit is fixed.
    adaptive: Option<usize>,
    /// Whether members that are not heard hold nothing: their calls have got their first tokens
    /// since.
    expires: bool,
}

/// Members of an earlier broker that may still use their slots. Nothing is granted meanwhile.
#[derive(Debug)]
struct Missing {
    /// Until when they are waited for.
    until: Instant,
    /// Whether the process of the earlier broker may still use its slots.
    broker_survives: bool,
    /// The number of members that have rejoined.
    rejoined: usize,
    /// The number of members that are expected to rejoin, as far as known.
    expected: usize,
}

/// The slots that the stopped process of an earlier broker may still use: those of `total` that no
/// member has claimed.
#[derive(Debug, Default)]
struct Withheld {
    /// The largest total of the leases at the earlier broker that a member knew of.
    total: usize,
    /// The slots that members have claimed.
    claimed: usize,
    /// Whether the process has ended or continues, so that no slot is withheld.
    is_over: bool,
}

/// What the broker knows of one member.
#[derive(Debug)]
struct Account {
    cap: usize,
    /// What the member's adaptive limit has found, or `None` if its limit is fixed.
    adaptive: Option<usize>,
    /// How much of the calls of all the member has seen.
    seniority: Seniority,
    weight: f64,
    leased: usize,
    /// The further slots that it wants. None count while it is not heard.
    want: usize,
    /// Whether it was heard lately when slots were last granted.
    is_heard: bool,
    /// The slots that the member may keep while others are short.
    fair: usize,
    /// The part of a contended slot to which the member is entitled: what is left when its fair
    /// number is rounded down. At least [`MIN_PART`].
    part: f64,
    /// The time for which the member held contended slots, in seconds, divided by `part`. Members
    /// that held none for long do not save up service: it is raised to the division's
    /// `virtual_time`.
    service: f64,
    /// The last update that was sent to the member.
    last_update: LeaseUpdate,
}

/// How much of the calls of all a member has seen, for the choice of the leader of an adaptive
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seniority {
    /// It was an observer, and has missed calls since.
    Replaced,
    /// It sees its own calls only.
    New,
    /// It is an observer.
    Observer,
    /// It was the deputy at an earlier broker.
    Deputy,
    /// It was the leader at an earlier broker.
    Leader,
}

impl Seniority {
    fn of(earlier: LimitRole) -> Self {
        match earlier {
            LimitRole::Follower => Self::New,
            LimitRole::Deputy => Self::Deputy,
            LimitRole::Leader => Self::Leader,
        }
    }
}

/// A member that wants slots, in the order of grants.
#[derive(Debug, PartialEq)]
struct Claimant {
    id: MemberId,
    /// Whether the member holds at least its fair number of slots.
    is_contended: bool,
    /// Leased slots per weight below the fair number, otherwise the service.
    rank: f64,
    /// Leased slots per weight.
    leased: f64,
}

impl Division {
    /// Creates a division without members at a broker that started at `started_at`. If it
    /// `expires`, members that are not heard hold nothing.
    pub(crate) fn new(started_at: Instant, predecessor: Predecessor, expires: bool) -> Self {
        let missing = (predecessor != Predecessor::None).then(|| Missing {
            until: started_at + REJOIN_TIME,
            broker_survives: predecessor == Predecessor::Stopped,
            rejoined: 0,
            expected: usize::MAX,
        });
        Self {
            accounts: BTreeMap::new(),
            virtual_time: 0.0,
            served_until: started_at,
            missing,
            withheld: Withheld { is_over: predecessor != Predecessor::Stopped, ..Withheld::default() },
            observers: Vec::new(),
            term: 0,
            adaptive: None,
            expires,
        }
    }

    /// Returns when time alone makes slots free, or `None` if it does not.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.missing.as_ref().map(|missing| missing.until)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.accounts.keys().copied()
    }

    /// Applies a report. The first one of a member adds the member.
    pub(crate) fn report(&mut self, now: Instant, id: MemberId, report: &Report) {
        self.charge(now);
        let cap = report.cap.clamp(1, MAX_CAP);
        let weight = report.weight.clamp(WEIGHTS.0, WEIGHTS.1);
        // NaN passes through `clamp`.
        let weight = if weight.is_nan() { 1.0 } else { weight };
        if !self.accounts.contains_key(&id) {
            if let Some(missing) = self.missing.as_mut().filter(|_| report.known_survivors > 0) {
                missing.on_rejoined(report.known_survivors);
            }
            self.withheld.total = self.withheld.total.max(report.known_total.min(MAX_CAP));
            // Whoever joins later was away, and has missed calls, or claims slots for a second
            // time.
            let rejoins = self.missing.as_ref().is_some_and(|missing| now < missing.until);
            if rejoins {
                self.withheld.claimed += report.claim.min(cap);
            }
            let role = report.role.unwrap_or_default();
            let is_rejoining = rejoins || role.is_follower();
            let account = Account {
                cap,
                adaptive: None,
                seniority: if is_rejoining { Seniority::of(role) } else { Seniority::Replaced },
                weight,
                leased: report.claim.min(cap),
                want: 0,
                is_heard: true,
                fair: cap,
                part: 1.0,
                service: self.virtual_time,
                last_update: LeaseUpdate::default(),
            };
            self.accounts.insert(id, account);
        } else if let Some((account, role)) = self.accounts.get_mut(&id).zip(report.role) {
            account.seniority = Seniority::of(role);
        }
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.cap = cap;
        account.adaptive = report.adaptive;
        account.weight = weight;
        account.leased = account.leased.saturating_sub(report.returned);
        account.want = report.want.min(cap.saturating_sub(account.leased));
        if self.observers.first() == Some(&id) {
            self.adaptive = report.adaptive;
        }
    }

    /// Charges the members for the contended slots that they held since the last call.
    fn charge(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.served_until).as_secs_f64();
        self.served_until = now;
        for account in self.accounts.values_mut() {
            account.service += account.leased.saturating_sub(account.fair) as f64 * time / account.part;
        }
    }

    /// Removes a member. Its slots are free at once.
    pub(crate) fn leave(&mut self, now: Instant, id: MemberId) {
        self.charge(now);
        self.accounts.remove(&id);
    }

    /// Returns the members that should observe the calls of all: two that are heard. Prefers those
    /// that did so at an earlier broker, then those that do so, and then those that have joined
    /// first. A member that was replaced comes last.
    fn next_observers(&self, now: Instant, presence: &Presence) -> Vec<MemberId> {
        let heard = self.adapting().filter(|(id, _)| presence.is_heard(now, *id));
        let mut able: Vec<_> = heard.map(|(id, account)| (Reverse(account.seniority), id)).collect();
        able.sort_unstable();
        able.into_iter().map(|(_, id)| id).take(2).collect()
    }

    /// Returns the members with an adaptive limit.
    fn adapting(&self) -> impl Iterator<Item = (MemberId, &Account)> {
        let members = self.accounts.iter().map(|(id, account)| (*id, account));
        members.filter(|(_, account)| account.adaptive.is_some())
    }

    /// Returns `true` if the leader or the deputy is not heard any more.
    pub(crate) fn needs_observers(&self, now: Instant, presence: &Presence) -> bool {
        self.observers.iter().any(|id| !presence.is_heard(now, *id))
    }

    /// Returns `true` if a member that wants slots is not heard any more, or is heard again.
    pub(crate) fn has_other_claimants(&self, now: Instant, presence: &Presence) -> bool {
        let mut claimants = self.accounts.iter().filter(|(_, account)| account.want > 0);
        claimants.any(|(id, account)| account.is_heard != presence.is_heard(now, *id))
    }

    /// Withholds no slots any more for the stopped process of the earlier broker.
    pub(crate) fn release_withheld(&mut self) {
        self.withheld.is_over = true;
    }

    /// Returns `true` if a member waits while one that is not heard any more has slots, which have
    /// expired.
    pub(crate) fn has_expired_slots(&self, now: Instant, presence: &Presence) -> bool {
        let mut accounts = self.accounts.iter();
        self.expires
            && self.accounts.values().any(Account::is_short)
            && accounts.any(|(id, account)| account.leased > 0 && !presence.is_heard(now, *id))
    }

    /// Returns `true` if the limit of the member is adaptive.
    pub(crate) fn adapts(&self, member: MemberId) -> bool {
        self.accounts.get(&member).is_some_and(|account| account.adaptive.is_some())
    }

    /// Returns the other members that observe the calls of `member`.
    pub(crate) fn observers_of(&self, member: MemberId) -> impl Iterator<Item = MemberId> + '_ {
        let observers = self.accounts.contains_key(&member).then_some(&self.observers);
        observers.into_iter().flatten().copied().filter(move |id| *id != member)
    }

    /// Appoints the leader and the deputy of an adaptive limit. A new leader begins with the limit
    /// of the one before. If nobody is heard, because all were stopped, nothing changes.
    fn appoint(&mut self, now: Instant, presence: &Presence) {
        let observers = self.next_observers(now, presence);
        if observers.is_empty() && self.adapting().next().is_some() {
            return;
        }
        for replaced in self.observers.iter().filter(|id| !observers.contains(id)) {
            if let Some(account) = self.accounts.get_mut(replaced) {
                account.seniority = Seniority::Replaced;
            }
        }
        self.term += u64::from(observers.iter().any(|id| !self.observers.contains(id)));
        self.observers = observers;
        for observer in &self.observers {
            if let Some(account) = self.accounts.get_mut(observer) {
                account.seniority = account.seniority.max(Seniority::Observer);
            }
        }
        let leader = self.observers.first().and_then(|leader| self.accounts.get(leader));
        self.adaptive = leader.and_then(|leader| self.adaptive.or(leader.adaptive));
    }

    /// Returns the cap that is divided: the smallest of all members or, if that is less, what the
    /// leader of an adaptive limit has found.
    fn cap(&self) -> usize {
        let cap = self.accounts.values().map(|account| account.cap).min().unwrap_or(0);
        self.adaptive.map_or(cap, |found| found.clamp(1, cap.max(1)))
    }

    /// Grants free slots, and returns the updates for the members.
    pub(crate) fn settle(&mut self, now: Instant, presence: &Presence) -> Vec<(MemberId, LeaseUpdate)> {
        self.appoint(now, presence);
        for (id, account) in &mut self.accounts {
            account.is_heard = presence.is_heard(now, *id);
        }
        let cap = self.cap();
        let leased = self.leased(now, presence);
        self.missing.take_if(|missing| missing.is_over(now));
        let free = if self.missing.is_some() { 0 } else { cap.saturating_sub(leased) };
        self.charge(now);
        self.divide(cap.saturating_sub(self.withheld()));
        let granted = self.grant(free);
        self.updates(now, cap, &granted, presence)
    }

    /// Computes the fair number of slots of each member.
    fn divide(&mut self, cap: usize) {
        let level = self.level(cap);
        for account in self.accounts.values_mut() {
            let exact = level * account.weight;
            // Rounding errors must not cost a slot.
            account.fair = (exact + 1e-9) as usize;
            account.part = (exact - account.fair as f64).max(MIN_PART);
        }
    }

    /// Returns the water level of max-min fairness: the number of slots per weight up to which each
    /// member gets what it needs.
    fn level(&self, cap: usize) -> f64 {
        let mut needs: Vec<(f64, f64)> = self.accounts.values().map(Account::need).collect();
        needs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let mut left = cap as f64;
        let mut weights: f64 = needs.iter().map(|(_, weight)| weight).sum();
        for (need, weight) in needs {
            if need / weight * weights > left {
                return left / weights;
            }
            left -= need;
            weights -= weight;
        }
        cap as f64
    }

    /// Divides free slots among the members that want some. Returns the grants.
    fn grant(&mut self, mut free: usize) -> BTreeMap<MemberId, usize> {
        let mut granted = BTreeMap::new();
        let claimants = self.accounts.iter().filter(|(_, account)| account.is_short());
        let mut claimants: BinaryHeap<_> =
            claimants.map(|(id, account)| account.claimant(*id, self.virtual_time)).collect();
        while free > 0
            && let Some(Claimant { id, is_contended, rank, .. }) = claimants.pop()
            && let Some(account) = self.accounts.get_mut(&id)
        {
            // Nobody competes for the slots that the last claimant wants.
            let slots = if claimants.is_empty() { account.want.min(free) } else { 1 };
            if is_contended {
                account.service = rank;
                self.virtual_time = rank;
            }
            free -= slots;
            account.leased += slots;
            account.want -= slots;
            *granted.entry(id).or_default() += slots;
            if account.want > 0 {
                claimants.push(account.claimant(id, self.virtual_time));
            }
        }
        granted
    }

    /// Returns an update for each member that was granted slots, or whose situation has changed.
    fn updates(
        &mut self,
        now: Instant,
        cap: usize,
        granted: &BTreeMap<MemberId, usize>,
        presence: &Presence,
    ) -> Vec<(MemberId, LeaseUpdate)> {
        let members = self.accounts.len();
        let count = |is: fn(&Account) -> bool| self.accounts.values().filter(|account| is(account)).count();
        let (short, owed) = (count(Account::is_short), count(Account::lacks_fair_slots));
        // If the broker's process has more gates, they remain when only the broker's gate ends, and
        // it is not known which gate that is.
        let survivors = members - usize::from(self.members().any(|id| presence.is_only_own(id)));
        // If this broker ends as well, the next one must also wait for the members that are still
        // missing.
        let survivors = self.missing.as_ref().map_or(survivors, |missing| survivors.max(missing.expected));
        let total = self.leased(now, presence);
        let term = self.term;
        let is_adaptive = self.adaptive.is_some();
        let mut updates = Vec::new();
        for (&id, account) in &mut self.accounts {
            let others_short = short > usize::from(account.is_short()) || total > cap;
            let others_owed = account.leased > account.fair && (owed > 0 || total > cap);
            let role = LimitRole::from_position(self.observers.iter().position(|observer| *observer == id));
            let appointment = is_adaptive.then_some(Appointment { role, term });
            // The fair number matters only while others are short.
            let fair = if others_short { account.fair } else { account.last_update.fair };
            let granted = granted.get(&id).copied().unwrap_or(0);
            let last = account.last_update;
            let update = LeaseUpdate {
                granted: 0,
                others_short,
                others_owed,
                fair,
                cap,
                members,
                survivors,
                total,
                appointment,
            };
            let is_new = granted > 0 || update != LeaseUpdate { total, ..last };
            if is_new {
                account.last_update = update;
                updates.push((id, LeaseUpdate { granted, ..account.last_update }));
            }
        }
        updates
    }

    /// Returns the update that tells a member the total of the leases, if that has changed since
    /// the last update.
    pub(crate) fn refresh(&mut self, now: Instant, id: MemberId, presence: &Presence) -> Option<LeaseUpdate> {
        let total = self.leased(now, presence);
        let account = self.accounts.get_mut(&id)?;
        if account.last_update.total == total {
            return None;
        }
        account.last_update.total = total;
        Some(account.last_update)
    }

    /// Returns the total of all leases, and of the slots that are withheld.
    fn leased(&self, now: Instant, presence: &Presence) -> usize {
        let holds = |id: &MemberId| !self.expires || presence.is_heard(now, *id);
        let accounts = self.accounts.iter().filter(|(id, _)| holds(id));
        self.withheld() + accounts.map(|(_, account)| account.leased).sum::<usize>()
    }

    /// Returns the slots that a stopped process of the earlier broker may still use.
    fn withheld(&self) -> usize {
        let Withheld { total, claimed, is_over } = self.withheld;
        if is_over || self.expires { 0 } else { total.saturating_sub(claimed) }
    }
}

impl Missing {
    /// Records that a member has rejoined, which knows that `survivors` members remain if the
    /// process of the earlier broker has died.
    fn on_rejoined(&mut self, survivors: usize) {
        self.rejoined += 1;
        if !self.broker_survives {
            self.expected = if self.rejoined == 1 { survivors } else { self.expected.max(survivors) };
        }
    }

    /// Returns `true` if no member needs to be waited for any more.
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now || self.rejoined >= self.expected
    }
}

impl Account {
    /// Returns the number of slots that the member needs, and its weight. A member that wants no
    /// more may have idle slots, which it returns when others are short.
    fn need(&self) -> (f64, f64) {
        let want = if self.is_heard { self.want } else { 0 };
        ((self.leased + want) as f64, self.weight)
    }

    fn is_short(&self) -> bool {
        self.is_heard && self.want > 0
    }

    /// Returns `true` if the member wants slots that it need not share with others.
    fn lacks_fair_slots(&self) -> bool {
        self.is_short() && self.leased < self.fair.max(1)
    }

    fn claimant(&self, id: MemberId, virtual_time: f64) -> Claimant {
        let is_contended = self.leased >= self.fair;
        let leased = self.leased as f64 / self.weight;
        let rank = if is_contended { self.service.max(virtual_time) } else { leased };
        Claimant { id, is_contended, rank, leased }
    }
}

impl Eq for Claimant {}

impl Ord for Claimant {
    /// The greatest claimant is served first.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = other.rank.total_cmp(&self.rank);
        let leased = other.leased.total_cmp(&self.leased);
        other.is_contended.cmp(&self.is_contended).then(rank).then(leased).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Claimant {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
