//! Which answer a request gets. Knows how many are in flight and how many came in the last minute; tells no time itself.

use std::collections::VecDeque;
use std::time::Duration;

use http::Uri;
use tidegate::wire::request::RequestFacts;
use tokio::time::Instant;

use crate::pattern::fits;
use crate::script::{Answer, Route, Script};

const MINUTE: Duration = Duration::from_secs(60);

/// What a request gets.
pub(crate) enum Choice {
    /// What the script says.
    Scripted(Answer),
    /// The route holds as many as it can.
    OverCapacity(Option<Duration>),
    /// The route had its rate; the next may come then.
    OverRate(Duration),
}

pub(crate) struct Routes {
    held: Vec<Held>,
    era: usize,
}

/// A place that an attempt holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    era: usize,
    route: usize,
}

struct Held {
    route: Route,
    next: usize,
    given: usize,
    in_flight: usize,
    recent: VecDeque<Instant>,
}

impl Routes {
    pub(crate) fn new(script: Script, era: usize) -> Self {
        let held = |route| Held { route, next: 0, given: 0, in_flight: 0, recent: VecDeque::new() };
        Self { held: script.routes.into_iter().map(held).collect(), era }
    }

    /// Which of the scripts this is: places held under another are none of its.
    pub(crate) fn era(&self) -> usize {
        self.era
    }

    /// The choice; or why there is none. A scripted answer holds a place of the route until [`Routes::free`].
    pub(crate) fn choose(
        &mut self,
        uri: &Uri,
        facts: &RequestFacts,
        body: &[u8],
        now: Instant,
    ) -> Result<(Place, Choice), &'static str> {
        let found = self.held.iter_mut().enumerate().find(|(_, held)| held.route.takes(uri, facts, body));
        let (number, held) = found.ok_or("no route of the script takes it")?;
        Ok((Place { era: self.era, route: number }, held.choose(now)?))
    }

    pub(crate) fn free(&mut self, place: Place) {
        if place.era == self.era
            && let Some(held) = self.held.get_mut(place.route)
        {
            held.in_flight -= 1;
        }
    }
}

impl Held {
    fn choose(&mut self, now: Instant) -> Result<Choice, &'static str> {
        if self.route.capacity.is_some_and(|capacity| self.in_flight >= capacity) {
            return Ok(Choice::OverCapacity(self.route.retry_after));
        }
        if let Some(rate) = self.route.rate {
            while self.recent.front().is_some_and(|first| now.saturating_duration_since(*first) >= MINUTE) {
                self.recent.pop_front();
            }
            if self.recent.len() >= rate {
                let next = self.recent.front().map_or(now + MINUTE, |first| *first + MINUTE);
                return Ok(Choice::OverRate(next.saturating_duration_since(now)));
            }
            self.recent.push_back(now);
        }
        let answer =
            self.answer().ok_or("its route has no answer left (`otherwise` would be given for ever)")?;
        self.in_flight += 1;
        Ok(Choice::Scripted(answer))
    }

    fn answer(&mut self) -> Option<Answer> {
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

impl Route {
    fn takes(&self, uri: &Uri, facts: &RequestFacts, body: &[u8]) -> bool {
        let fit = |pattern: &Option<String>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => fits(pattern, text),
            (Some(_), None) => false,
        };
        fit(&self.host, uri.host())
            && fit(&self.path, Some(uri.path()))
            && fit(&self.model, facts.model.as_deref())
            && self.contains.as_ref().is_none_or(|text| String::from_utf8_lossy(body).contains(text.as_str()))
    }
}
