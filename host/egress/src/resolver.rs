//! Who says which addresses a name has.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// Look-ups of the system's resolver at once. Each holds a thread, longer than its caller waits where a name's servers
/// are silent.
const MAX_LOOKUPS: usize = 64;

type Lookup = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// Answers with every address of a name.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

impl Resolver {
    /// The system's, as `/etc/resolv.conf` and its like have it.
    pub fn system() -> Self {
        let room = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self::new(move |name| {
            let room = Arc::clone(&room);
            async move {
                let turn = room.acquire_owned().await.map_err(io::Error::other)?;
                let lookup = tokio::task::spawn_blocking(move || {
                    let addresses = (name.as_str(), 0).to_socket_addrs();
                    drop(turn);
                    addresses.map(|found| found.map(|address| address.ip()).collect())
                });
                lookup.await?
            }
        })
    }

    /// One of the caller's.
    pub fn new<F, L>(lookup: F) -> Self
    where
        F: Fn(String) -> L + Send + Sync + 'static,
        L: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |name| lookup(name).boxed()))
    }

    pub(crate) async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        (self.0)(name.to_owned()).await
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}
