//! The rates that a provider allows, in code.

use std::time::Duration;

use super::{Target, count, or_none, text, time};
use crate::config::parse::tree::{Table, Value};
use crate::config::{Counting, HeaderPolicy};

/// Rates that several targets share, for [`ConfigBuilder::budget`](super::ConfigBuilder::budget).
#[derive(Clone, Default)]
pub struct Budget {
    pub(super) keys: Table,
}

impl Budget {
    /// A budget that no rate bounds until a response's headers speak of one.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `rpm`: requests a minute; `None` where it is not known.
    pub fn rpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("rpm", of(rate))
    }

    /// `rpd`: requests a day; `None` where it is not known.
    pub fn rpd(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("rpd", of(rate))
    }

    /// `tpm`: tokens a minute, input and output together; `None` where it is not known.
    pub fn tpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("tpm", of(rate))
    }

    /// `tpd`: tokens a day; `None` where it is not known.
    pub fn tpd(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("tpd", of(rate))
    }

    /// `itpm`: input tokens a minute, where they are counted apart; `None` where it is not known.
    pub fn itpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("itpm", of(rate))
    }

    /// `otpm`: output tokens a minute, where they are counted apart; `None` where it is not known.
    pub fn otpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("otpm", of(rate))
    }

    /// `burst`: how much of a rate may go out at once, as time.
    pub fn burst(self, span: Duration) -> Self {
        self.set("burst", time(span))
    }

    /// `counting`: how the provider counts a call.
    pub fn counting(self, rule: Counting) -> Self {
        self.set("counting", text(rule.as_str()))
    }

    /// `headers`: what the provider's rate headers may do.
    pub fn headers(self, what: HeaderPolicy) -> Self {
        self.set("headers", text(what.as_str()))
    }
}

/// A target's own rates. Beside [`Target::budget`] they are an error.
impl Target {
    /// `rpm`: requests a minute; `None` where it is not known.
    pub fn rpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("rpm", of(rate))
    }

    /// `rpd`: requests a day; `None` where it is not known.
    pub fn rpd(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("rpd", of(rate))
    }

    /// `tpm`: tokens a minute, input and output together; `None` where it is not known.
    pub fn tpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("tpm", of(rate))
    }

    /// `tpd`: tokens a day; `None` where it is not known.
    pub fn tpd(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("tpd", of(rate))
    }

    /// `itpm`: input tokens a minute, where they are counted apart; `None` where it is not known.
    pub fn itpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("itpm", of(rate))
    }

    /// `otpm`: output tokens a minute, where they are counted apart; `None` where it is not known.
    pub fn otpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("otpm", of(rate))
    }

    /// `burst`: how much of a rate may go out at once, as time.
    pub fn burst(self, span: Duration) -> Self {
        self.set("burst", time(span))
    }

    /// `counting`: how the provider counts a call.
    pub fn counting(self, rule: Counting) -> Self {
        self.set("counting", text(rule.as_str()))
    }

    /// `headers`: what the provider's rate headers may do.
    pub fn headers(self, what: HeaderPolicy) -> Self {
        self.set("headers", text(what.as_str()))
    }

    /// `budget`: the name of the budgets that its rates are part of; `None` for its own.
    pub fn budget<'a>(self, name: impl Into<Option<&'a str>>) -> Self {
        self.set("budget", or_none(name.into().map(text)))
    }
}

/// A rate, or none.
fn of(rate: impl Into<Option<u64>>) -> Value {
    or_none(rate.into().map(count))
}
