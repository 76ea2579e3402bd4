//! The servers of a Redis URL: one, a master that Sentinel elects, or a cluster.
//!
//! | URL | Servers |
//! |---|---|
//! | `redis://`, `rediss://` | one |
//! | `redis-sentinel://HOST,HOST/MASTER/DATABASE` | the master of this name; the hosts are Sentinels |
//! | `redis-cluster://HOST,HOST` | the master of weir's keys in the cluster of these hosts |
//!
//! `rediss-sentinel` and `rediss-cluster` use TLS, also with Sentinels. In a cluster, all of weir's keys are in one hash
//! slot, so one master holds them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult,
};

use crate::secrets::SecretUrl;

/// Checks the form of a URL. The problem has no subject.
pub(super) fn check(url: &SecretUrl) -> Result<(), String> {
    match url.scheme() {
        "redis" | "rediss" => Ok(()),
        "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster" => {
            let servers = Servers::of(url).map(drop);
            servers.map_err(|error| format!("is invalid: {error}"))
        }
        _ => Err(
            "must begin with redis:// or rediss://, redis-sentinel:// or redis-cluster://"
                .to_owned(),
        ),
    }
}

/// Prefix of all keys in a cluster: its hash tag puts them into one slot.
const NAMESPACE_IN_CLUSTER: &str = "{weir}:";

pub(super) enum Servers {
    One(ConnectionInfo),
    Sentinels {
        sentinels: Vec<ConnectionInfo>,
        /// The name of the master.
        master: String,
        database: i64,
    },
    Cluster(Vec<ConnectionInfo>),
}

impl Servers {
    /// Reads a URL.
    pub(super) fn of(url: &SecretUrl) -> RedisResult<Self> {
        let (scheme, rest) = url.expose().split_once("://").unwrap_or_default();
        let Some((transport, kind)) = scheme.split_once('-') else {
            return Ok(Self::One(url.expose().into_connection_info()?));
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let default_port = if kind == "sentinel" { ":26379" } else { "" };
        let hosts: RedisResult<Vec<_>> = hosts
            .split(',')
            .map(|host| {
                let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
                let port = if has_port { "" } else { default_port };
                format!("{transport}://{user}{host}{port}").into_connection_info()
            })
            .collect();
        let hosts = hosts?;
        match (kind, path.split_once('/').unwrap_or((path, ""))) {
            ("cluster", ("" | "0", "")) => Ok(Self::Cluster(hosts)),
            ("cluster", _) => Err(invalid("a cluster has only the database 0")),
            ("sentinel", ("", _)) => Err(invalid(
                "the URL lacks the master's name: redis-sentinel://HOST,HOST/MASTER",
            )),
            ("sentinel", (master, database)) => Ok(Self::Sentinels {
                sentinels: hosts,
                master: master.to_owned(),
                database: match database {
                    "" => 0,
                    number => number
                        .parse()
                        .map_err(|_| invalid("the database is no number"))?,
                },
            }),
            _ => Err(invalid("the URL's scheme is unknown")),
        }
    }

    /// The prefix of all keys.
    pub(super) fn namespace(&self) -> &'static str {
        match self {
            Self::One(_) | Self::Sentinels { .. } => "weir:",
            Self::Cluster(_) => NAMESPACE_IN_CLUSTER,
        }
    }

    /// Returns the server that holds weir's keys now. If Sentinels or nodes of a cluster disagree, most of them decide.
    pub(super) async fn find(&self, timeout: Duration) -> RedisResult<ConnectionInfo> {
        match self {
            Self::One(server) => Ok(server.clone()),
            Self::Sentinels {
                sentinels,
                master,
                database,
            } => {
                let answers = sentinels.iter().map(async |sentinel| {
                    let address = ask_sentinel(sentinel, master, timeout).await?;
                    Ok((sentinel, address))
                });
                let (sentinel, address) = of_most(answers.collect()).await?;
                let settings = sentinel.redis_settings().clone().set_db(*database);
                Ok(with_address(sentinel, address).set_redis_settings(settings))
            }
            Self::Cluster(nodes) => {
                let answers = nodes.iter().map(async |node| {
                    let address = in_time(timeout, ask_node(node)).await?;
                    Ok((node, address))
                });
                let (node, address) = of_most(answers.collect()).await?;
                Ok(with_address(node, address))
            }
        }
    }
}

/// Waits for a call for a limited time.
pub(super) async fn in_time<T>(
    time: Duration,
    call: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match tokio::time::timeout(time, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RedisError::from(std::io::Error::from(
            std::io::ErrorKind::TimedOut,
        ))),
    }
}

type Address = (String, u16);

/// Asks a Sentinel for the master, with the URL's password if the Sentinel needs one.
async fn ask_sentinel(
    sentinel: &ConnectionInfo,
    master: &str,
    timeout: Duration,
) -> RedisResult<Address> {
    let ask = async |settings: RedisConnectionInfo| {
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let sentinel = sentinel.clone().set_redis_settings(settings);
        let asked = query::<Option<Address>>(sentinel, &command);
        let address = in_time(timeout, asked).await?;
        address.ok_or_else(|| invalid("the Sentinel does not know the master's name"))
    };
    match ask(sentinel.redis_settings().clone()).await {
        Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
            ask(RedisConnectionInfo::default()).await
        }
        answer => answer,
    }
}

/// Asks a node of a cluster for the master of weir's slot.
async fn ask_node(node: &ConnectionInfo) -> RedisResult<Address> {
    let mut commands = redis::pipe();
    commands
        .cmd("CLUSTER")
        .arg("KEYSLOT")
        .arg(NAMESPACE_IN_CLUSTER);
    commands.cmd("CLUSTER").arg("SLOTS");
    let client = Client::open(node.clone())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let (slot, ranges): (u16, Vec<redis::Value>) = commands.query_async(&mut connection).await?;
    for range in ranges {
        // https://redis.io/docs/latest/commands/cluster-slots/: a range, its master, its replicas.
        let redis::Value::Array(range) = range else {
            continue;
        };
        let [first, last, master, ..] = &range[..] else {
            continue;
        };
        let range: (u16, u16) = (
            u16::from_redis_value_ref(first)?,
            u16::from_redis_value_ref(last)?,
        );
        if (range.0..=range.1).contains(&slot)
            && let redis::Value::Array(master) = master
            && let [host, port, ..] = &master[..]
        {
            let host: Option<String> = FromRedisValue::from_redis_value_ref(host)?;
            // A node that does not know its own address means the address of this connection.
            let host = host.filter(|host| !host.is_empty());
            let host = host.unwrap_or_else(|| host_of(node).to_owned());
            return Ok((host, u16::from_redis_value_ref(port)?));
        }
    }
    Err(unavailable("no node of the cluster holds weir's keys"))
}

async fn query<T: FromRedisValue>(server: ConnectionInfo, command: &redis::Cmd) -> RedisResult<T> {
    let client = Client::open(server)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    command.query_async(&mut connection).await
}

/// Returns the address that most servers name, with one of them. A silent server delays nothing if more than half of all agree.
async fn of_most<'s>(
    mut answers: FuturesUnordered<impl Future<Output = RedisResult<(&'s ConnectionInfo, Address)>>>,
) -> RedisResult<(&'s ConnectionInfo, Address)> {
    let all = answers.len();
    let mut votes: HashMap<Address, (usize, &ConnectionInfo)> = HashMap::new();
    let mut failure = unavailable("no server is named");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok((from, address)) => {
                let (count, _) = votes.entry(address.clone()).or_insert((0, from));
                *count += 1;
                if 2 * *count > all {
                    return Ok((from, address));
                }
            }
            Err(error) => failure = error,
        }
    }
    let most = votes.into_iter().max_by_key(|(_, (count, _))| *count);
    most.map(|(address, (_, from))| (from, address))
        .ok_or(failure)
}

/// Returns the connection of a server with another address.
fn with_address(server: &ConnectionInfo, (host, port): Address) -> ConnectionInfo {
    let address = match server.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    server.clone().set_addr(address)
}

fn host_of(server: &ConnectionInfo) -> &str {
    match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

fn invalid(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}

fn unavailable(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(servers: &[ConnectionInfo]) -> Vec<String> {
        servers
            .iter()
            .map(|server| server.addr().to_string())
            .collect()
    }

    #[test]
    fn urls_name_sentinels_and_nodes() {
        let of = |url: &str| Servers::of(&SecretUrl::new(url));
        let url = "redis-sentinel://weir:p%40ss@a,b:1,[::1]/mymaster/3";
        let Ok(Servers::Sentinels {
            sentinels,
            master,
            database,
        }) = of(url)
        else {
            panic!("{url}");
        };
        assert_eq!(addresses(&sentinels), ["a:26379", "b:1", "::1:26379"]);
        assert_eq!((&*master, database), ("mymaster", 3));
        assert_eq!(sentinels[0].redis_settings().password(), Some("p@ss"));
        let Ok(Servers::Cluster(nodes)) = of("rediss-cluster://a,b:1") else {
            panic!("a cluster");
        };
        assert_eq!(addresses(&nodes), ["a:6379", "b:1"]);
        assert!(matches!(nodes[0].addr(), ConnectionAddr::TcpTls { .. }));
        for wrong in [
            "redis-sentinel://a,b",
            "redis-sentinel://a/m/x",
            "redis-cluster://a/1",
            "redis-other://a",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
