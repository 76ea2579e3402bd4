//! The addresses of a name: from the hosts file, or from the name servers of `resolv.conf`.
//!
//! **Invariant:** a look-up runs in its caller's future. If the future is dropped, its UDP sockets close, and its permit
//! is free. `getaddrinfo` cannot be cancelled: it holds a thread until its servers have timed out.
//!
//! **Invariant:** look-ups query only the name servers of `resolv.conf`. If it has none, the look-up fails, so no
//! public server learns which names this machine looks up.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::sync::Semaphore;

/// The maximum number of concurrent look-ups; others wait. A look-up whose server is silent has up to 6 UDP sockets: 3
/// tries for each address family.
const MAX_LOOKUPS: usize = 64;

/// The maximum number of name servers from a `resolv.conf`; weir ignores the others (`MAXNS` in resolv.conf(5)).
const MAX_SERVERS: usize = 3;

/// The highest `ndots` (resolv.conf(5)).
const MAX_NDOTS: u32 = 15;

/// The longest `timeout` (resolv.conf(5)).
const MAX_TIMEOUT_SECONDS: u32 = 30;

/// The most `attempts` (resolv.conf(5)).
const MAX_ATTEMPTS: u32 = 5;

type LookupFunction = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// A resolver: returns every address of a name.
#[derive(Clone)]
pub struct Resolver(Arc<LookupFunction>);

impl Resolver {
    /// The system's resolver: `/etc/hosts`, then the name servers of `/etc/resolv.conf`.
    ///
    /// It follows glibc's `getaddrinfo` with `hosts: files dns`:
    ///
    /// - If the hosts file has the name, weir queries no server. A trailing dot makes no difference here.
    /// - weir queries servers in their order. If a server times out or fails, weir queries the next one, but not if a
    ///   server says that the name does not exist.
    /// - weir queries A and AAAA records in parallel. One response of the two suffices. IPv4 addresses come first.
    /// - The search list applies to names without a trailing dot.
    /// - weir reads the options `ndots`, `timeout`, `attempts`, `edns0` and `no-aaaa`, and ignores all other options.
    ///
    /// The differences from glibc:
    ///
    /// - If `/etc/resolv.conf` is missing or has no name server, look-ups fail; glibc would query this machine.
    /// - weir does not call other modules of `nsswitch.conf` (`mdns`, `myhostname`, `resolve`).
    /// - `localhost` and its subdomains are loopback, and `invalid` and `onion` do not exist (RFC 6761, RFC 7686); weir
    ///   queries no server for them.
    ///
    /// weir caches nothing. Each look-up checks both files for changes, and reads them again after a change.
    pub fn system() -> Self {
        let files = SystemFiles::new("/etc/resolv.conf", "/etc/hosts");
        Self::with(move || files.current())
    }

    /// A resolver from the caller's function.
    pub fn new<F, L>(lookup: F) -> Self
    where
        F: Fn(String) -> L + Send + Sync + 'static,
        L: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Self(Arc::new(move |name| lookup(name).boxed()))
    }

    /// Looks names up in the current sources, [`MAX_LOOKUPS`] at once.
    fn with<F>(current: F) -> Self
    where
        F: Fn() -> Arc<NameSources> + Send + Sync + 'static,
    {
        let room = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self::new(move |name| {
            let room = Arc::clone(&room);
            let sources = current();
            async move {
                let _turn = room.acquire_owned().await.map_err(io::Error::other)?;
                sources.look_up(&name).await
            }
        })
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

/// A hosts file, and name servers for the names that it does not have.
struct NameSources {
    hosts: Hosts,
    /// The name servers, or the reason for their absence.
    servers: Result<NameServers, String>,
}

impl NameSources {
    /// # Errors
    ///
    /// Fails with `InvalidInput` if the DNS cannot hold the name, with `NotFound` if the name has no address, with
    /// `TimedOut` if no server responds in time, else with `Other`.
    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        // The name stays ASCII, because IDNA rejects existing names, such as names with two hyphens at the third
        // letter.
        let name = Name::from_ascii(name)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let addresses = self.in_hosts(&name);
        if !addresses.is_empty() {
            return Ok(addresses);
        }
        match &self.servers {
            Ok(servers) => servers.look_up(&name).await,
            Err(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    /// The name's addresses in the hosts file, of both families.
    ///
    /// hickory's own check of the file would query a server for the missing family, and would try the search list
    /// before the name itself.
    fn in_hosts(&self, name: &Name) -> Vec<IpAddr> {
        let of_type = |record_type| {
            let query = Query::query(name.clone(), record_type);
            self.hosts.lookup_static_host(&query)
        };
        let lookups = [of_type(RecordType::A), of_type(RecordType::AAAA)];
        let records = lookups.iter().flatten().flat_map(|found| found.answers());
        records.filter_map(|record| record.data.ip_addr()).collect()
    }
}

/// Name servers, in query order.
struct NameServers {
    /// One client for each server: hickory takes the first response of several, even a failure.
    clients: Vec<TokioResolver>,
    /// The number of tries for each server.
    attempts: usize,
}

impl NameServers {
    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        let attempts = std::mem::take(&mut options.attempts);
        // [`NameSources`] reads the hosts file first.
        options.use_hosts_file = ResolveHosts::Never;
        // A name may appear at any moment, and a tool call takes much longer than a look-up.
        options.cache_size = 0;
        let (domain, search, servers) = config.into_parts();
        let client = |server| {
            let config = ResolverConfig::from_parts(domain.clone(), search.clone(), vec![server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
                .with_options(options.clone())
                .build()
        };
        Ok(Self {
            clients: servers.into_iter().map(client).collect::<Result<_, _>>()?,
            attempts,
        })
    }

    /// Reads a `resolv.conf`. The parser ignores invalid lines.
    ///
    /// # Errors
    ///
    /// The error is a predicate.
    fn parse(resolv_conf: &[u8]) -> Result<Self, String> {
        let (read, _) = resolv_conf::Config::parse_with_errors(resolv_conf);
        let servers: Vec<_> = read.nameservers.iter().take(MAX_SERVERS).collect();
        if servers.is_empty() {
            return Err("has no name server".to_owned());
        }
        let servers = servers
            .into_iter()
            .map(|address| NameServerConfig::udp_and_tcp(address.into()))
            .collect();
        let mut search: Vec<_> = read.get_last_search_or_domain().cloned().collect();
        if search.is_empty() {
            search.extend(read.get_system_domain());
        }
        let search = search
            .iter()
            .filter_map(|domain| Name::from_ascii(domain).ok());
        let config = ResolverConfig::from_parts(None, search.collect(), servers);
        let mut options = ResolverOpts::default();
        options.ndots = read.ndots.min(MAX_NDOTS) as usize;
        options.timeout = Duration::from_secs(read.timeout.clamp(1, MAX_TIMEOUT_SECONDS).into());
        options.attempts = read.attempts.clamp(1, MAX_ATTEMPTS) as usize;
        options.edns0 = read.edns0;
        // IPv4 first: unlike getaddrinfo, hickory does not sort addresses by whether this machine has a route to them.
        options.ip_strategy = match read.no_aaaa {
            true => LookupIpStrategy::Ipv4Only,
            false => LookupIpStrategy::Ipv4AndIpv6,
        };
        Self::new(config, options).map_err(|error| format!("cannot be used: {error}"))
    }

    async fn look_up(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        let mut failure = NetError::NoConnections;
        for _ in 0..self.attempts {
            for client in &self.clients {
                match client.lookup_ip(name.clone()).await {
                    Ok(found) => return Ok(found.iter().collect()),
                    Err(error) if error.is_no_records_found() => {
                        return Err(io::Error::new(io::ErrorKind::NotFound, error));
                    }
                    Err(error) => failure = error,
                }
            }
        }
        Err(match failure {
            NetError::Timeout => io::Error::new(io::ErrorKind::TimedOut, failure),
            failure => io::Error::other(failure),
        })
    }
}

/// A `resolv.conf` and a hosts file, with the sources that were last read from them.
struct SystemFiles {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    last_read: Mutex<Option<CachedNameSources>>,
}

struct CachedNameSources {
    versions: [Option<FileVersion>; 2],
    sources: Arc<NameSources>,
}

impl SystemFiles {
    fn new(resolv_conf: impl Into<PathBuf>, hosts: impl Into<PathBuf>) -> Self {
        Self {
            resolv_conf: resolv_conf.into(),
            hosts: hosts.into(),
            last_read: Mutex::default(),
        }
    }

    /// Returns the sources of the files' current versions. The call blocks for two `stat`s, which take microseconds, and for
    /// reading changed files.
    fn current(&self) -> Arc<NameSources> {
        let mut last_read = self
            .last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The versions are read before the files, so that the next call sees a concurrent change.
        let versions = [&self.resolv_conf, &self.hosts].map(|path| FileVersion::of(path));
        match &*last_read {
            Some(last) if last.versions == versions => Arc::clone(&last.sources),
            _ => {
                let sources = Arc::new(self.read());
                *last_read = Some(CachedNameSources {
                    versions,
                    sources: Arc::clone(&sources),
                });
                sources
            }
        }
    }

    fn read(&self) -> NameSources {
        let servers = match fs::read(&self.resolv_conf) {
            Ok(resolv_conf) => NameServers::parse(&resolv_conf),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        let mut hosts = Hosts::default();
        // If the file is missing or a line is not UTF-8, weir queries the servers for the other names.
        if let Ok(file) = fs::read(&self.hosts) {
            let _ = hosts.read_hosts_conf(file.as_slice());
        }
        NameSources {
            hosts,
            servers: servers.map_err(|reason| format!("{} {reason}", self.resolv_conf.display())),
        }
    }
}

/// The version of a file, as glibc tells it: a replaced file has another inode, a changed file another size or time.
#[derive(PartialEq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns `None` if the file does not exist.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{FuturesUnordered, StreamExt as _};
    use hickory_resolver::config::ConnectionConfig;
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::{RData, Record};
    use tokio::net::UdpSocket;
    use tokio::sync::mpsc;
    use tokio::time::timeout;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    const IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

    /// Longer than a test may take, so a test fails if it waits for a silent server.
    const SILENCE: Duration = Duration::from_secs(600);

    /// The timeout for work that nothing blocks, on a busy machine.
    const SOON: Duration = Duration::from_secs(5);

    enum Reply {
        Addresses,
        Code(ResponseCode),
        Silence,
    }

    /// A name server on 127.0.0.1.
    struct Server {
        address: SocketAddr,
        asked: mpsc::UnboundedReceiver<(String, RecordType)>,
        _serving: AbortOnDropHandle<()>,
    }

    impl Server {
        /// Responds to each query as the name and the type require.
        async fn start(reply: fn(&str, RecordType) -> Reply) -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            let address = socket.local_addr().expect("an address");
            let (sender, asked) = mpsc::unbounded_channel();
            let serving = tokio::spawn(async move {
                let mut packet = [0; 512];
                while let Ok((length, client)) = socket.recv_from(&mut packet).await {
                    let request = Message::from_vec(&packet[..length]).expect("a message");
                    let query = request.queries.first().expect("a query").clone();
                    let (name, record_type) = (query.name().to_string(), query.query_type());
                    let reply = reply(&name, record_type);
                    // The test may have dropped its receiver.
                    let _ = sender.send((name, record_type));
                    let mut response = request.into_response();
                    match reply {
                        Reply::Silence => continue,
                        Reply::Code(code) => response.metadata.response_code = code,
                        Reply::Addresses => {
                            let address = match record_type {
                                RecordType::A => RData::A(IPV4.into()),
                                _ => RData::AAAA(IPV6.into()),
                            };
                            response.add_answer(Record::from_rdata(
                                query.name().clone(),
                                60,
                                address,
                            ));
                        }
                    }
                    let response = response.to_vec().expect("a response");
                    socket.send_to(&response, client).await.expect("sent");
                }
            });
            Self {
                address,
                asked,
                _serving: AbortOnDropHandle::new(serving),
            }
        }

        fn asked(&mut self) -> HashSet<String> {
            std::iter::from_fn(|| self.asked.try_recv().ok())
                .map(|(name, _)| name)
                .collect()
        }
    }

    /// Returns a resolver for these servers, with a search list.
    fn resolver(servers: &[&Server], search: &[&str]) -> Resolver {
        let servers = servers.iter().map(|server| {
            let mut udp = ConnectionConfig::udp();
            udp.port = server.address.port();
            NameServerConfig::new(server.address.ip(), true, vec![udp])
        });
        let search = search
            .iter()
            .map(|domain| Name::from_ascii(domain).expect("a name"));
        let config = ResolverConfig::from_parts(None, search.collect(), servers.collect());
        let mut options = ResolverOpts::default();
        options.attempts = 1;
        options.timeout = SILENCE;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        let sources = Arc::new(NameSources {
            hosts: Hosts::default(),
            servers: Ok(NameServers::new(config, options).expect("servers")),
        });
        Resolver::with(move || Arc::clone(&sources))
    }

    #[tokio::test]
    async fn a_name_has_the_addresses_of_both_families_or_of_one() {
        let server = Server::start(|name, record_type| match (name, record_type) {
            ("both.example.", _) => Reply::Addresses,
            ("four.example.", RecordType::A) => Reply::Addresses,
            ("six.example.", RecordType::AAAA) => Reply::Addresses,
            ("none.example.", _) => Reply::Code(ResponseCode::NXDomain),
            _ => Reply::Code(ResponseCode::NoError),
        })
        .await;
        let resolver = resolver(&[&server], &[]);
        let both = resolver.resolve("both.example.").await;
        assert_eq!(both.expect("addresses"), [IpAddr::from(IPV4), IPV6.into()]);
        let four = resolver.resolve("four.example.").await;
        assert_eq!(four.expect("an address"), [IPV4]);
        let six = resolver.resolve("six.example.").await;
        assert_eq!(six.expect("an address"), [IPV6]);
        for name in ["none.example.", "empty.example."] {
            let error = resolver.resolve(name).await.expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }

    #[tokio::test]
    async fn only_names_without_a_dot_at_their_end_are_tried_in_the_search_list() {
        let mut server = Server::start(|name, _| match name {
            "page.b.example." => Reply::Addresses,
            _ => Reply::Code(ResponseCode::NXDomain),
        })
        .await;
        let resolver = resolver(&[&server], &["a.example", "b.example"]);
        let found = resolver.resolve("page").await.expect("addresses");
        assert_eq!(found, [IpAddr::from(IPV4), IPV6.into()]);
        assert_eq!(
            server.asked(),
            ["page.a.example.", "page.b.example."]
                .map(str::to_owned)
                .into()
        );
        resolver.resolve("page.").await.expect_err("no address");
        assert_eq!(server.asked(), ["page.".to_owned()].into());
    }

    #[tokio::test]
    async fn the_next_server_is_asked_if_one_fails_but_not_if_it_denies_the_name() {
        let mut first = Server::start(|name, _| match name {
            "fails.example." => Reply::Code(ResponseCode::ServFail),
            "refused.example." => Reply::Code(ResponseCode::Refused),
            _ => Reply::Code(ResponseCode::NXDomain),
        })
        .await;
        let mut second = Server::start(|_, _| Reply::Addresses).await;
        let resolver = resolver(&[&first, &second], &[]);
        for name in ["fails.example.", "refused.example."] {
            let found = resolver.resolve(name).await.expect(name);
            assert_eq!(found, [IpAddr::from(IPV4), IPV6.into()], "{name}");
            assert_eq!(first.asked(), [name.to_owned()].into());
            assert_eq!(second.asked(), [name.to_owned()].into());
        }
        let error = resolver.resolve("denied.example.").await;
        let error = error.expect_err("no address");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(second.asked(), HashSet::new());
    }

    /// A caller drops its look-up at a timeout, for example.
    #[tokio::test]
    async fn dropped_lookups_make_room_at_once() {
        let mut server = Server::start(|name, _| match name {
            "page.example." => Reply::Addresses,
            _ => Reply::Silence,
        })
        .await;
        let resolver = resolver(&[&server], &[]);
        let names: Vec<_> = (0..MAX_LOOKUPS)
            .map(|number| format!("silent-{number}.example."))
            .collect();
        let mut silent: FuturesUnordered<_> =
            names.iter().map(|name| resolver.resolve(name)).collect();
        let mut asked = HashSet::new();
        while asked.len() < 2 * MAX_LOOKUPS {
            tokio::select! {
                query = server.asked.recv() => asked.insert(query.expect("a query")),
                found = silent.next() => panic!("a silent server has answered: {found:?}"),
            };
        }

        let mut page = pin!(resolver.resolve("page.example."));
        assert!(page.as_mut().now_or_never().is_none());
        drop(silent);
        let found = timeout(SOON, page).await.expect("room").expect("addresses");
        assert_eq!(found, [IpAddr::from(IPV4), IPV6.into()]);
    }

    /// hickory lets look-ups of one name at one time share a query, here one whose first packets are lost.
    #[tokio::test]
    async fn a_lookup_goes_on_if_another_one_of_its_name_is_dropped() {
        static PACKETS: AtomicUsize = AtomicUsize::new(0);
        let mut server = Server::start(|_, _| match PACKETS.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Reply::Silence,
            _ => Reply::Addresses,
        })
        .await;
        let resolver = resolver(&[&server], &[]);
        let mut first = Box::pin(resolver.resolve("page.example."));
        let mut second = pin!(resolver.resolve("page.example."));
        for _ in 0..2 {
            tokio::select! {
                biased;
                _ = &mut first => panic!("the packets were lost"),
                _ = &mut second => panic!("the packets were lost"),
                query = server.asked.recv() => query.expect("a query"),
            };
        }
        drop(first);
        let found = timeout(SOON, second)
            .await
            .expect("no wait")
            .expect("addresses");
        assert_eq!(found, [IpAddr::from(IPV4), IPV6.into()]);
    }

    #[tokio::test]
    async fn the_hosts_file_comes_first_and_changed_files_are_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (resolv_conf, hosts) = (
            folder.path().join("resolv.conf"),
            folder.path().join("hosts"),
        );
        let files = SystemFiles::new(&resolv_conf, &hosts);
        let resolver = Resolver::with(move || files.current());

        // weir queries no other server, and the error names the file to change.
        let error = resolver.resolve("page.example.").await;
        let error = error.expect_err("no file").to_string();
        assert!(error.contains("resolv.conf cannot be read"), "{error}");
        fs::write(&resolv_conf, "search example\n").expect("written");
        let error = resolver.resolve("page.example.").await;
        let error = error.expect_err("no server").to_string();
        assert!(error.ends_with("resolv.conf has no name server"), "{error}");

        fs::write(&hosts, "192.0.2.1 page.example page # of ours\n").expect("written");
        for name in ["page.example.", "page.example", "PAGE"] {
            let found = resolver.resolve(name).await.expect(name);
            assert_eq!(found, [IPV4], "{name}");
        }
        fs::write(&hosts, "2001:db8::1 page.example\n192.0.2.1 page.example\n").expect("written");
        let found = resolver.resolve("page.example.").await;
        assert_eq!(found.expect("addresses"), [IpAddr::from(IPV4), IPV6.into()]);
        fs::remove_file(&hosts).expect("removed");
        resolver
            .resolve("page.example.")
            .await
            .expect_err("no file");
    }

    #[test]
    fn a_resolv_conf_is_read_within_bounds() {
        let read = |text: &str| NameServers::parse(text.as_bytes());
        let servers = read("nameserver 192.0.2.1\nnameserver ::1\n").expect("servers");
        assert_eq!((servers.clients.len(), servers.attempts), (2, 2));
        let options = servers.clients[0].options();
        assert_eq!((options.ndots, options.timeout.as_secs()), (1, 5));
        assert_eq!((options.attempts, options.cache_size), (0, 0));
        assert_eq!(options.ip_strategy, LookupIpStrategy::Ipv4AndIpv6);

        let text = "nonsense\nnameserver 192.0.2.1\n".repeat(5)
            + "options ndots:99 timeout:99 attempts:99 no-aaaa\n";
        let servers = read(&text).expect("servers");
        assert_eq!((servers.clients.len(), servers.attempts), (3, 5));
        let options = servers.clients[0].options();
        assert_eq!((options.ndots, options.timeout.as_secs()), (15, 30));
        assert_eq!(options.ip_strategy, LookupIpStrategy::Ipv4Only);

        let servers = read("nameserver ::1\noptions timeout:0 attempts:0\n").expect("servers");
        assert_eq!(servers.attempts, 1);
        assert_eq!(servers.clients[0].options().timeout.as_secs(), 1);
        for text in ["", "# nameserver 192.0.2.1", "nameserver page.example"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
