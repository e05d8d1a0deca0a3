//! The connection to the store: one server, a cluster, or the primary that Sentinels know.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult, Script, TlsMode,
};
use tokio::sync::mpsc::UnboundedSender;

use super::account::JOIN_TIMEOUT;
use crate::config::{RedisUrl, ShareConfig};
use crate::error::Error;

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the store is, and how to log in.
pub(super) struct Server {
    url: RedisUrl,
    share: ShareConfig,
    password: Option<String>,
}

/// A connection that also receives what the store pushes.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Reads the password from the environment.
    ///
    /// # Errors
    /// `Config` if the variable with the password is not set.
    pub(super) fn new(share: &ShareConfig, url: &RedisUrl) -> Result<Self, Error> {
        let password = match share.password_env.as_deref() {
            Some(name) => Some(std::env::var(name).map_err(|_| {
                let problem = format!(
                    "share: the environment variable {name} is not set; set it to the password of the store, or remove `password_env`"
                );
                Error::config(problem)
            })?),
            None => None,
        };
        Ok(Self { url: url.clone(), share: share.clone(), password })
    }

    /// Returns the addresses of the store, for the log.
    pub(super) fn address(&self) -> String {
        self.url.to_string()
    }

    /// Returns the number of the database.
    pub(super) fn database(&self) -> u32 {
        self.url.database
    }

    /// Connects. Everything that the store pushes is sent to `pushes`. Commands wait for their
    /// answers without a maximum time, or in a cluster for [`JOIN_TIMEOUT`].
    ///
    /// # Errors
    /// No server can be reached, or none accepts the login.
    pub(super) async fn connect(&self, pushes: UnboundedSender<PushInfo>) -> RedisResult<Connection> {
        if self.url.tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            // `redis` takes the provider of the process, and panics if rustls was built with
            // several.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        if self.share.cluster {
            return self.connect_cluster(pushes).await;
        }
        let config = config.set_push_sender(pushes);
        let connection = if let Some(primary) = &self.share.sentinel {
            self.connect_primary(primary, &config).await?
        } else {
            let Some(address) = self.nodes().next() else {
                return Err((ErrorKind::InvalidClientConfig, "no address").into());
            };
            let info = address.into_connection_info()?.set_redis_settings(self.login());
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?
        };
        Ok(Connection::Single(connection))
    }

    async fn connect_cluster(&self, pushes: UnboundedSender<PushInfo>) -> RedisResult<Connection> {
        let mut builder = ClusterClientBuilder::new(self.nodes())
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(JOIN_TIMEOUT)
            .push_sender(pushes);
        if self.url.tls {
            builder = builder.tls(TlsMode::Secure);
        }
        if let Some(username) = &self.url.username {
            builder = builder.username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        builder.build()?.get_async_connection().await.map(Connection::Cluster)
    }

    async fn connect_primary(
        &self,
        primary: &str,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let server_type = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(self.nodes(), primary, server_type)?
            .set_client_to_redis_protocol(ProtocolVersion::RESP3)
            .set_client_to_redis_db(i64::from(self.url.database));
        if self.url.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(username) = &self.url.username {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        builder.build()?.get_async_connection_with_config(config).await
    }

    fn nodes(&self) -> impl Iterator<Item = ConnectionAddr> {
        let tls = self.url.tls;
        self.share.addresses(&self.url).into_iter().map(move |(host, port)| {
            let host = host.to_string();
            if tls {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(i64::from(self.url.database));
        if let Some(username) = &self.url.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }
}

impl Connection {
    /// Returns `true` if the connection finds working servers again when one is lost.
    pub(super) fn is_self_healing(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns `true` if the connection can be used after an error. After an answer to another
    /// message, the later answers are to other messages, too.
    pub(super) fn outlives(&self, error: &RedisError) -> bool {
        let is_mixed_up = matches!(error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType);
        self.is_self_healing() && !is_mixed_up
    }

    /// Receives what is pushed to `channel`.
    ///
    /// # Errors
    /// The server cannot be reached, or does not know sharded channels (before version 7).
    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Single(connection) => redis::cmd("SSUBSCRIBE").arg(channel).exec_async(connection).await,
            Self::Cluster(connection) => connection.ssubscribe(channel).await,
        }
    }

    /// Receives nothing more from `channel`.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(super) async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Single(connection) => redis::cmd("SUNSUBSCRIBE").arg(channel).exec_async(connection).await,
            Self::Cluster(connection) => connection.sunsubscribe(channel).await,
        }
    }

    /// Passes `text` on to the members that receive what is pushed to `channel`. Returns their
    /// number.
    ///
    /// # Errors
    /// The server cannot be reached, or permits no publishing.
    pub(super) async fn publish(&mut self, channel: &str, text: &str) -> RedisResult<u32> {
        let mut command = redis::cmd("SPUBLISH");
        command.arg(channel).arg(text);
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// Runs the script on the resource whose state has this key. Returns `None` if the store does
    /// not know the member.
    ///
    /// # Errors
    /// The server cannot be reached, or the script fails.
    pub(super) async fn run(
        &mut self,
        script: &Script,
        key: &str,
        arguments: &[String],
    ) -> RedisResult<Option<String>> {
        let mut invocation = script.prepare_invoke();
        invocation.key(key).key(format!("{key}:heard")).key(format!("{key}:cools")).arg(arguments);
        match self {
            Self::Single(connection) => invocation.invoke_async(connection).await,
            Self::Cluster(connection) => invocation.invoke_async(connection).await,
        }
    }
}
