//! A network address that leads to one server, and later to another, as a failover moves it.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_storage::secrets::SecretUrl;

use crate::stores::with_port;

/// An address before servers. Connections stay with the server that they were made to.
pub struct Switch {
    address: SocketAddr,
    /// `None`: connections are accepted, and carry nothing.
    target: watch::Sender<Option<SocketAddr>>,
    /// Number of the present generation of connections; a later one closes those of earlier ones.
    cuts: watch::Sender<u64>,
    connected: watch::Receiver<Vec<SocketAddr>>,
}

impl Switch {
    /// An address that leads to this one.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (target, leads_to) = watch::channel(Some(target));
        let (cuts, seen) = watch::channel(0);
        let (connections, connected) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut leads_to = leads_to.clone();
                let target = *leads_to.borrow_and_update();
                let mut seen = seen.clone();
                seen.mark_unchanged();
                let connections = connections.clone();
                open.spawn(async move {
                    let silence = async {
                        // The value must not stay borrowed: its sender would wait.
                        let _ = leads_to.wait_for(Option::is_none).await;
                    };
                    let carried = async {
                        let Some(target) = target else {
                            return std::future::pending().await;
                        };
                        let mut far = TcpStream::connect(target).await?;
                        connections.send_modify(|all| all.push(target));
                        tokio::select! {
                            ended = tokio::io::copy_bidirectional(&mut near, &mut far) => ended.map(drop),
                            () = silence => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        _ = carried => {}
                        _ = seen.changed() => {}
                    }
                });
                while open.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            target,
            cuts,
            connected,
        }
    }

    /// An address that leads to the server of a URL, and the URL of that address.
    pub async fn before(url: &SecretUrl) -> (Self, SecretUrl) {
        let port = url::Url::parse(url.expose()).expect("a URL").port();
        let port = port.expect("it has a port");
        let switch = Self::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        let url = with_port(url, switch.address.port());
        (switch, url)
    }

    /// Leads new connections to this server.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }

    /// Carries nothing any more: open connections stay open, and new ones are accepted.
    pub fn fall_silent(&self) {
        self.target.send_replace(None);
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Waits until so many connections to a server have been made.
    pub async fn has_connected(&self, server: SocketAddr, times: usize) {
        let enough =
            |all: &Vec<SocketAddr>| all.iter().filter(|to| **to == server).count() >= times;
        let mut connected = self.connected.clone();
        connected.wait_for(enough).await.expect("it accepts");
    }
}

/// The URL with these hosts instead of its own.
pub fn with_hosts(url: &SecretUrl, hosts: &[SocketAddr]) -> SecretUrl {
    let hosts: Vec<_> = hosts.iter().map(SocketAddr::to_string).collect();
    let (before, after) = url.expose().split_once('@').expect("a user");
    let (_, database) = after.split_once('/').expect("a database");
    SecretUrl::new(format!("{before}@{}/{database}", hosts.join(",")))
}
