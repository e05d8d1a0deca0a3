//! The keys of shared limits: whether several processes share the caps of targets and tools.

use std::fmt;

use url::{Host, Url};

#[cfg(test)]
use super::Kind;
use super::{Config, Given, InvalidValue, OnFull, RateConfig, Scalar, TargetConfig, Text, TextRule, Value};

/// The port of a server or of a Sentinel whose address has none.
const PORTS: (u16, u16) = (6379, 26379);
/// The maximum number of addresses of a store.
const MAX_NODES: usize = 100;

builders! {
    /// Builds the settings of shared limits, for
    /// [`ConfigBuilder::share`](crate::ConfigBuilder::share).
    Share;
}

impl Share {
    /// Shares the caps among the processes of the same user on this machine (`store = "local"`).
    pub fn local() -> Self {
        Self::default().store(ShareStore::Local)
    }

    /// Shares the caps among all processes that use the same Redis or Valkey server. See
    /// [`ShareConfig::store`] for the forms of `url`.
    pub fn redis(url: impl Into<String>) -> Self {
        let mut share = Self::default();
        share.keys.push("store", Value::Text(url.into()));
        share
    }
}

settings! {
    /// Which processes share the caps of targets and tools.
    pub struct ShareConfig, table SHARE "ShareConfig", builders [Share];
    check check_store;
    fields {
        /// The environment variable with the password of the server. `None`: no password.
        password_env: Option<Text> = None;
    }
    keys {
        /// Where the shared state is stored, which determines the processes that share caps:
        /// `"auto"` (in Python, the children that a process with a gate forks), `"off"` (none: each
        /// has the whole caps), `"local"` (processes of the same user on this machine), or the URL
        /// of a Redis or Valkey server of version 7 or newer, such as `"redis://host:6379/0"`.
        /// `rediss` uses TLS. A user in the URL requires `password_env`. A cluster and Sentinels
        /// have several addresses: `"redis://a:6379,b:6379"`.
        store: ShareStore = ShareStore::Auto, ();
        /// The name of the group: only processes with the same name share caps. It becomes part of
        /// a file name.
        name: Text = "default".into(), SHARE_NAME;
        /// Whether a process admits no calls if the store is lost for longer than a lease. By
        /// default, it then uses each cap divided by the last known number of processes.
        strict: bool = false, ();
        /// Whether the server is a Redis or Valkey Cluster.
        cluster: bool = false, ();
        /// The name under which Sentinels know the primary. The addresses of `store` are those of
        /// the Sentinels, without a password.
        sentinel: Option<Text> = None, PRIMARY_NAME => "none";
    }
    special {
        /// The environment variable with the password of the server.
        password_env: Kind::Text("the name of an environment variable") => "none";
    }
}

/// Accepts names that are safe as part of a file name on every system.
const SHARE_NAME: TextRule<Text> = TextRule {
    expected: "a name of 1 to 40 characters of a-z, A-Z, 0-9, - and _",
    parse: |name| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_valid = matches!(name.len(), 1..=40) && name.bytes().all(is_allowed);
        if is_valid { Ok(name.into()) } else { Err("") }
    },
};

/// Accepts the names that Sentinel accepts.
const PRIMARY_NAME: TextRule<Text> = TextRule {
    expected: "the name of the primary in the configuration of the Sentinels, such as \"mymaster\"",
    parse: |name| {
        let is_valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid { Ok(name.into()) } else { Err("") }
    },
};

/// Where the state of caps that several processes share is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShareStore {
    /// On this machine for the children that a Python process with a gate forks, otherwise nowhere.
    /// The default.
    #[default]
    Auto,
    /// Nowhere: each process has the whole caps for itself.
    Off,
    /// On this machine: processes of the same user share the caps.
    Local,
    /// On a Redis or Valkey server: processes that use the same server share the caps.
    Redis(RedisUrl),
}

/// The addresses of a Redis or Valkey server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Whether connections use TLS.
    pub tls: bool,
    /// The name of the user. `None`: the server's default user.
    pub username: Option<Text>,
    /// The addresses, at least one: host (without brackets) and port. Port 0 is the default port.
    pub nodes: Vec<(Text, u16)>,
    /// The number of the database.
    pub database: u32,
}

impl ShareStore {
    const EXPECTED: &'static str = "\"auto\", \"off\", \"local\" or a URL such as \"redis://host:6379\" or \"rediss://user@host:6379/0\"";
}

impl Scalar for ShareStore {
    type Bounds = ();

    fn read(value: &Value, (): &()) -> Result<Self, InvalidValue> {
        let invalid = |hint| InvalidValue::expected(Self::EXPECTED).hint(hint);
        match value.as_text() {
            Some("auto") => Ok(Self::Auto),
            Some("off") => Ok(Self::Off),
            Some("local") => Ok(Self::Local),
            Some(url) if url.contains("://") => RedisUrl::parse(url).map(Self::Redis).map_err(invalid),
            _ => Err(invalid("")),
        }
    }

    fn to_value(&self) -> Value {
        Value::Text(match self {
            Self::Auto => "auto".to_owned(),
            Self::Off => "off".to_owned(),
            Self::Local => "local".to_owned(),
            Self::Redis(url) => url.to_string(),
        })
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        Kind::Special {
            reference: "`\"auto\"`, `\"off\"`, `\"local\"`, or the URL of a Redis or Valkey server",
            typescript: "\"auto\" | \"off\" | \"local\" | `${\"redis\" | \"rediss\" | \"valkey\" | \"valkeys\"}://${string}`",
            python: "str",
        }
    }
}

impl RedisUrl {
    /// Parses a URL of the form `redis://user@host:port,host:port/database`. The error is a hint
    /// for the user, which does not repeat the URL, because it may have a password.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("")?;
        let tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err("the scheme must be redis, rediss, valkey or valkeys"),
        };
        if rest.contains(['?', '#']) {
            return Err("remove the query");
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = if database.is_empty() { Ok(0) } else { database.parse() };
        let database = database.map_err(|_| "the path must be the number of a database, such as /0")?;
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err("put the password into an environment variable, and name it with share.password_env");
        }
        let node = |host: &str| {
            let url = Url::parse(&format!("http://{host}/")).ok()?;
            let name = match url.host()? {
                Host::Ipv6(address) => address.to_string(),
                host => host.to_string(),
            };
            // A URL omits the port 80, which is the default of its scheme.
            let port = if host.ends_with(":80") { 80 } else { url.port().unwrap_or(0) };
            (url.path() == "/" && !url.cannot_be_a_base()).then(|| (name.into(), port))
        };
        let nodes: Option<Vec<_>> = hosts.split(',').map(node).collect();
        let nodes =
            nodes.filter(|nodes| nodes.len() <= MAX_NODES).ok_or("an address must be host or host:port")?;
        let username = Some(user).filter(|user| !user.is_empty()).map(Into::into);
        Ok(Self { tls, username, nodes, database })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss://" } else { "redis://" })?;
        if let Some(user) = &self.username {
            write!(f, "{user}@")?;
        }
        for (index, (host, port)) in self.nodes.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            if host.contains(':') {
                write!(f, "[{host}]")?;
            } else {
                f.write_str(host)?;
            }
            if *port != 0 {
                write!(f, ":{port}")?;
            }
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

/// Reports keys that have no effect, or that contradict each other.
fn check_store(share: &ShareConfig, given: &Given<'_>) {
    if !given.has("store") {
        for key in ["name", "strict", "password_env", "cluster", "sentinel"] {
            given.reject_key(key, "has no effect without a \"store\"; set store = \"local\", or remove it");
        }
    }
    if share.store == ShareStore::Local {
        for key in ["password_env", "cluster", "sentinel"] {
            let text = "has no effect with store = \"local\"; set the URL of a Redis server, or remove it";
            given.reject_key(key, text);
        }
    }
    if let Some((key, text)) = share.contradiction() {
        given.reject_key(key, text);
    }
}

impl Config {
    /// Returns the name of a target or tool whose limits cannot be shared, because it refuses calls
    /// instead of queueing them: a process gets its part on demand, which takes a moment.
    pub fn unshareable(&self) -> Option<&str> {
        let target =
            self.targets.iter().find(|target| self.is_unshareable(target)).map(|target| &*target.name);
        let tool = || self.tools.iter().find(|(_, tool)| tool.on_full == OnFull::Refuse);
        target.or_else(|| tool().map(|(name, _)| name.as_str()))
    }

    /// Returns `true` if the limits of a target cannot be shared. A pool without rates shares no
    /// limits.
    pub(crate) fn is_unshareable(&self, target: &TargetConfig) -> bool {
        target.on_full == OnFull::Refuse && (target.pool.is_none() || self.rates_of(target).is_limited())
    }

    /// Returns `true` if processes can share the rates of a target, because no target that uses
    /// them refuses calls instead of queueing them.
    pub fn can_share_rates(&self, target: &TargetConfig) -> bool {
        target.budget.as_ref().map_or(target.on_full != OnFull::Refuse, |name| self.can_share_budget(name))
    }

    /// Returns `true` if processes can share a budget, because no target that uses it refuses calls
    /// instead of queueing them.
    pub fn can_share_budget(&self, name: &str) -> bool {
        let mut users = self.targets.iter().filter(|target| target.budget.as_deref() == Some(name));
        users.all(|target| target.on_full != OnFull::Refuse)
    }

    /// Returns the rates of a target: those of its budget, or its own.
    pub fn rates_of<'a>(&'a self, target: &'a TargetConfig) -> &'a RateConfig {
        target.budget.as_ref().and_then(|name| self.budgets.get(name)).unwrap_or(&target.rates)
    }

    /// Returns a copy of a target for use without this configuration: the rates of its budget are
    /// its own.
    pub fn detached(&self, target: &TargetConfig) -> TargetConfig {
        TargetConfig { rates: self.rates_of(target).clone(), budget: None, ..target.clone() }
    }

    /// Shares limits among the forked children of one process, as the group `name`, unless the
    /// configuration says which processes share. Has no effect if a target or tool is
    /// [`Config::unshareable`].
    pub fn share_among_forked(&mut self, name: &str) {
        if self.share.store == ShareStore::Auto && self.unshareable().is_none() {
            self.share = ShareConfig { store: ShareStore::Local, name: name.into(), ..self.share.clone() };
        }
    }
}

impl ShareConfig {
    /// Returns `true` if limits are shared on request of the configuration: the store is neither
    /// `auto` nor `off`.
    pub fn is_on(&self) -> bool {
        !matches!(self.store, ShareStore::Auto | ShareStore::Off)
    }

    /// Returns a key that contradicts another one, and what to do, or `None` if all agree.
    pub(crate) fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        let ShareStore::Redis(url) = &self.store else { return None };
        if self.cluster && self.sentinel.is_some() {
            Some(("sentinel", "contradicts cluster = true; remove one of them"))
        } else if self.cluster && url.database != 0 {
            Some(("store", "names a database, which a cluster does not have; remove the path"))
        } else if !self.cluster && self.sentinel.is_none() && url.nodes.len() > 1 {
            let text =
                "has several addresses; set cluster = true, or the name of the primary with \"sentinel\"";
            Some(("store", text))
        } else if url.username.is_some() && self.password_env.is_none() {
            let text = "names a user; name the environment variable with the password by \"password_env\"";
            Some(("store", text))
        } else {
            None
        }
    }

    /// Returns the addresses of the server or of the Sentinels: hosts and ports.
    pub fn addresses(&self, url: &RedisUrl) -> Vec<(Text, u16)> {
        let default = if self.sentinel.is_some() { PORTS.1 } else { PORTS.0 };
        let address = |(host, port): &(Text, u16)| (host.clone(), if *port == 0 { default } else { *port });
        url.nodes.iter().map(address).collect()
    }
}
