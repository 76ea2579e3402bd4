//! A TCP proxy that carries each byte after a fixed delay, as a longer cable does, and counts round trips.
//!
//! Each connection has threads of its own, because timers of an async runtime have a resolution of 1 ms. A thread reads on
//! while earlier bytes wait, so that the delay does not limit the throughput.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_storage::secrets::SecretUrl;

use crate::stores::with_port;

/// An address that leads to a server, with a delay each way. It accepts connections until the process ends.
pub struct DelayedLink {
    address: SocketAddr,
    counts: Arc<LinkCounts>,
}

/// Counts of all connections.
#[derive(Default)]
struct LinkCounts {
    round_trips: AtomicU64,
    pieces: AtomicU64,
    /// Sum of the delays of all pieces.
    delays_ns: AtomicU64,
}

/// A direction of a connection.
struct Direction {
    /// Whether it carries what the client sends.
    is_clients: bool,
    /// Whether the client has sent data since the server did.
    client_speaks: Arc<AtomicBool>,
    counts: Arc<LinkCounts>,
}

/// Bytes, and the time at which they were read.
type Piece = (Instant, Vec<u8>);

impl DelayedLink {
    /// A link to this address.
    pub fn to(target: SocketAddr, each_way: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let counts = Arc::new(LinkCounts::default());
        let link = Self {
            address,
            counts: counts.clone(),
        };
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // If the server is down, the client's connection is closed.
                if let Ok(far) = TcpStream::connect(target) {
                    connect(&near, &far, each_way, &counts).expect("both are open");
                }
            }
        });
        link
    }

    /// A link to the server of a URL, and the URL of the link.
    pub fn before(url: &SecretUrl, each_way: Duration) -> (Self, SecretUrl) {
        let port = url::Url::parse(url.expose()).expect("a URL").port();
        let port = port.expect("it has a port");
        let link = Self::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), each_way);
        let url = with_port(url, link.address.port());
        (link, url)
    }

    /// Returns how many times a client has sent data after a response of the server, on all connections.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::Relaxed)
    }

    /// Returns the mean of the delays, both ways together. On a busy machine, it exceeds the wanted delay.
    pub fn mean_round_trip(&self) -> Duration {
        let pieces = self.counts.pieces.load(Ordering::Relaxed).max(1);
        Duration::from_nanos(2 * self.counts.delays_ns.load(Ordering::Relaxed) / pieces)
    }
}

fn connect(
    near: &TcpStream,
    far: &TcpStream,
    each_way: Duration,
    counts: &Arc<LinkCounts>,
) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let client_speaks = Arc::new(AtomicBool::new(false));
    for (from, to, is_clients) in [(near, far, true), (far, near, false)] {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let direction = Direction {
            is_clients,
            client_speaks: client_speaks.clone(),
            counts: counts.clone(),
        };
        let (queue, pieces) = channel();
        let counts = counts.clone();
        thread::spawn(move || direction.read(&from, &queue));
        thread::spawn(move || write(&to, &pieces, each_way, &counts));
    }
    Ok(())
}

impl Direction {
    /// Reads until the end, and closes the queue by returning.
    fn read(&self, mut from: &TcpStream, queue: &Sender<Piece>) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            if self.client_speaks.swap(self.is_clients, Ordering::Relaxed) != self.is_clients
                && self.is_clients
            {
                self.counts.round_trips.fetch_add(1, Ordering::Relaxed);
            }
            let piece = (Instant::now(), buffer[..bytes].to_vec());
            if queue.send(piece).is_err() {
                return;
            }
        }
    }
}

/// Writes each piece when its delay has passed; after the last one, ends this direction.
fn write(mut to: &TcpStream, pieces: &Receiver<Piece>, each_way: Duration, counts: &LinkCounts) {
    for (read_at, bytes) in pieces {
        thread::sleep(each_way.saturating_sub(read_at.elapsed()));
        counts.pieces.fetch_add(1, Ordering::Relaxed);
        let delay_ns = read_at.elapsed().as_nanos() as u64;
        counts.delays_ns.fetch_add(delay_ns, Ordering::Relaxed);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may be closed already.
    let _ = to.shutdown(Shutdown::Write);
}
