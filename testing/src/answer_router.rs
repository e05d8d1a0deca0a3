//! Selects the answer to a request from the routes of a script. For each route, counts the attempts
//! in flight and those of the last minute. Reads no clock; the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use http::Uri;
use tidegate::protocol::request::RequestFacts;
use tokio::time::Instant;

use crate::script::{Script, ScriptRoute, ScriptedAnswer};
use crate::text_pattern::matches_pattern;

const MINUTE: Duration = Duration::from_secs(60);

/// How a route answers a request.
pub(crate) enum RouteDecision {
    /// The next answer of the route's script.
    Scripted(ScriptedAnswer),
    /// A 429, because [`ScriptRoute::capacity`] attempts are in flight. Contains the `Retry-After`,
    /// if the route has one.
    OverCapacity(Option<Duration>),
    /// A 429, because the last minute had [`ScriptRoute::rate`] attempts. Contains the time until
    /// the next attempt is accepted.
    OverRate(Duration),
}

pub(crate) struct Router {
    states: Vec<RouteState>,
    script_version: usize,
}

/// The route that counts an attempt as in flight, for [`Router::release`] when the attempt ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteSlot {
    script_version: usize,
    route: usize,
}

struct RouteState {
    route: ScriptRoute,
    next: usize,
    times_given: usize,
    in_flight: usize,
    recent: VecDeque<Instant>,
}

impl Router {
    pub(crate) fn new(script: Script, script_version: usize) -> Self {
        let state =
            |route| RouteState { route, next: 0, times_given: 0, in_flight: 0, recent: VecDeque::new() };
        Self { states: script.routes.into_iter().map(state).collect(), script_version }
    }

    /// Returns the number of the script that this router was created for. [`Router::release`]
    /// ignores each [`RouteSlot`] of another script.
    pub(crate) fn script_version(&self) -> usize {
        self.script_version
    }

    /// Selects the route and the answer for a request that arrives at `now`. For
    /// [`RouteDecision::Scripted`], counts the attempt as in flight until [`Router::release`].
    ///
    /// If `is_by_gate` is `true`, the request is one of the gate itself, and only a route that
    /// names the path of the request matches.
    ///
    /// # Errors
    ///
    /// Returns a description of the reason if no route matches, or if the route that matches has no
    /// answer left.
    pub(crate) fn choose(
        &mut self,
        uri: &Uri,
        facts: &RequestFacts,
        body: &[u8],
        is_by_gate: bool,
        now: Instant,
    ) -> Result<(RouteSlot, RouteDecision), &'static str> {
        let found = self.states.iter_mut().enumerate().find(|(_, state)| {
            (!is_by_gate || state.route.names_path()) && state.route.matches(uri, facts, body)
        });
        let (number, state) = found.ok_or("no route of the script matches")?;
        Ok((RouteSlot { script_version: self.script_version, route: number }, state.choose(now)?))
    }

    pub(crate) fn release(&mut self, slot: RouteSlot) {
        if slot.script_version == self.script_version
            && let Some(state) = self.states.get_mut(slot.route)
        {
            state.in_flight -= 1;
        }
    }
}

impl RouteState {
    fn choose(&mut self, now: Instant) -> Result<RouteDecision, &'static str> {
        if self.route.capacity.is_some_and(|capacity| self.in_flight >= capacity) {
            return Ok(RouteDecision::OverCapacity(self.route.retry_after));
        }
        if let Some(rate) = self.route.rate {
            while self.recent.front().is_some_and(|first| now.saturating_duration_since(*first) >= MINUTE) {
                self.recent.pop_front();
            }
            if self.recent.len() >= rate {
                let next = self.recent.front().map_or(now + MINUTE, |first| *first + MINUTE);
                return Ok(RouteDecision::OverRate(next.saturating_duration_since(now)));
            }
            self.recent.push_back(now);
        }
        let answer = self
            .answer()
            .ok_or("its route has no answer left (set `otherwise` for an answer that never runs out)")?;
        self.in_flight += 1;
        Ok(RouteDecision::Scripted(answer))
    }

    fn answer(&mut self) -> Option<ScriptedAnswer> {
        while let Some(answer) = self.route.answers.get(self.next) {
            if self.times_given < answer.times() {
                self.times_given += 1;
                return Some(answer.clone());
            }
            (self.next, self.times_given) = (self.next + 1, 0);
        }
        self.route.otherwise.clone()
    }
}

impl ScriptRoute {
    /// Returns `true` if the route is for a certain path, or for paths with a certain end.
    fn names_path(&self) -> bool {
        self.path.as_ref().is_some_and(|pattern| !pattern.ends_with('*'))
    }

    fn matches(&self, uri: &Uri, facts: &RequestFacts, body: &[u8]) -> bool {
        let condition_matches = |pattern: &Option<String>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => matches_pattern(pattern, text),
            (Some(_), None) => false,
        };
        condition_matches(&self.host, uri.host())
            && condition_matches(&self.path, Some(uri.path()))
            && condition_matches(&self.model, facts.model.as_deref())
            && self.contains.as_ref().is_none_or(|text| String::from_utf8_lossy(body).contains(text.as_str()))
    }
}
