//! The limit that finds itself, beside an oracle that knows, fixed numbers and other controllers: scenarios of minutes in virtual time.

pub(crate) mod contender;
pub(crate) mod peers;
