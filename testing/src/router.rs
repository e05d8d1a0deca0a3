//! Selects the answer to a request. Tracks the attempts in flight and the attempts of the last
//! minute; the time is an input.

use std::collections::VecDeque;
use std::time::Duration;

use http::Uri;
use tidegate::protocol::request::RequestFacts;
use tokio::time::Instant;

use crate::pattern::matches_pattern;
use crate::script::{Script, ScriptRoute, ScriptedAnswer};

const MINUTE: Duration = Duration::from_secs(60);

/// The answer to a request.
pub(crate) enum RouteDecision {
    /// An answer of the script.
    Scripted(ScriptedAnswer),
    /// The route is at its capacity. Contains the `Retry-After`.
    OverCapacity(Option<Duration>),
    /// The route is at its rate. Contains the time until the next attempt is accepted.
    OverRate(Duration),
}

pub(crate) struct Router {
    states: Vec<RouteState>,
    script_version: usize,
}

/// A place that an attempt holds in its route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteSlot {
    script_version: usize,
    route: usize,
}

struct RouteState {
    route: ScriptRoute,
    next: usize,
    given: usize,
    in_flight: usize,
    recent: VecDeque<Instant>,
}

impl Router {
    pub(crate) fn new(script: Script, script_version: usize) -> Self {
        let states = |route| RouteState { route, next: 0, given: 0, in_flight: 0, recent: VecDeque::new() };
        Self { states: script.routes.into_iter().map(states).collect(), script_version }
    }

    /// Returns the number of this script. Places of other scripts are ignored.
    pub(crate) fn script_version(&self) -> usize {
        self.script_version
    }

    /// Selects an answer, or returns why there is none. A scripted answer holds a place of its
    /// route until [`Router::free`].
    pub(crate) fn choose(
        &mut self,
        uri: &Uri,
        facts: &RequestFacts,
        body: &[u8],
        now: Instant,
    ) -> Result<(RouteSlot, RouteDecision), &'static str> {
        let found =
            self.states.iter_mut().enumerate().find(|(_, states)| states.route.takes(uri, facts, body));
        let (number, states) = found.ok_or("no route of the script matches")?;
        Ok((RouteSlot { script_version: self.script_version, route: number }, states.choose(now)?))
    }

    pub(crate) fn free(&mut self, place: RouteSlot) {
        if place.script_version == self.script_version
            && let Some(states) = self.states.get_mut(place.route)
        {
            states.in_flight -= 1;
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
            if self.given < answer.times() {
                self.given += 1;
                return Some(answer.clone());
            }
            (self.next, self.given) = (self.next + 1, 0);
        }
        self.route.otherwise.clone()
    }
}

impl ScriptRoute {
    fn takes(&self, uri: &Uri, facts: &RequestFacts, body: &[u8]) -> bool {
        let fit = |pattern: &Option<String>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => matches_pattern(pattern, text),
            (Some(_), None) => false,
        };
        fit(&self.host, uri.host())
            && fit(&self.path, Some(uri.path()))
            && fit(&self.model, facts.model.as_deref())
            && self.contains.as_ref().is_none_or(|text| String::from_utf8_lossy(body).contains(text.as_str()))
    }
}
