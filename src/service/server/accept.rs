//! The tasks that accept, one for each listener.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::address::{Address, Peer};
use super::error::StartError;
use super::gate::Place;
use super::keeper::Command;
use super::settings::{Bind, Settings, WhenFull};
use super::share::Share;
use super::stats::count;
use crate::actor;
use crate::actor::SendError;
use crate::actor::channel::Sender;
use crate::net::claim::{self, Claim, ClaimError};
use crate::net::{TcpListener, TcpStream, UnixListener};
use crate::runtime::executor::contain;
use crate::runtime::{CoreId, now, sleep, timeout};
use crate::service::protocol::Protocol;

/// Pauses after an error, which doubles from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long the descriptor of a connection that has ended takes at most to be closed, as a rule.
const AFTER_A_RELEASE: Duration = Duration::from_millis(1);
/// Errors are logged this often at most.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// A listener from which connections can be accepted.
pub(super) enum Door {
    Tcp(TcpListener),
    /// With its file, which is removed when it closes.
    Unix {
        listener: UnixListener,
        _claim: Claim,
    },
}

/// Listens on all addresses; on the Unix ones if this is the first core.
pub(super) fn open<P: Protocol>(
    settings: &Settings<P>,
    core: CoreId,
    number: usize,
) -> Result<(Vec<Door>, Vec<Address>), StartError> {
    let (mut doors, mut addresses) = (Vec::new(), Vec::new());
    for Bind { address, mode } in &settings.addresses {
        let failed = |source| StartError::Listen { address: address.clone(), core, source };
        match address {
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind_with(*wanted, settings.listener).map_err(failed)?;
                addresses.push(Address::Tcp(listener.local_addr().map_err(failed)?));
                doors.push(Door::Tcp(listener));
            }
            Address::Unix(path) => {
                addresses.push(address.clone());
                if number == 0 {
                    let (listener, claim) = claim::claim(path, *mode).map_err(|error| match error {
                        ClaimError::InUse => StartError::InUse { address: address.clone() },
                        ClaimError::NotOurs => StartError::NotASocket { address: address.clone() },
                        ClaimError::Refused(source) => failed(source),
                    })?;
                    doors.push(Door::Unix { listener, _claim: claim });
                }
            }
        }
    }
    Ok((doors, addresses))
}

impl Door {
    async fn accept(&mut self) -> io::Result<(TcpStream, Peer)> {
        match self {
            Door::Tcp(listener) => {
                let stream = listener.accept().await?;
                let peer = stream.peer_addr().map_or(Peer::Gone, Peer::Tcp);
                Ok((stream, peer))
            }
            Door::Unix { listener, .. } => {
                let stream = listener.accept().await?;
                match stream.detach() {
                    // From here on it moves as what it is not: all but addresses and options is the same.
                    Ok(detached) => Ok((TcpStream::from(detached.attach()), Peer::Unix)),
                    Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
                }
            }
        }
    }

    fn retry(&mut self) {
        match self {
            Door::Tcp(listener) => listener.retry(),
            Door::Unix { listener, .. } => listener.retry(),
        }
    }
}

/// Accepts until it is stopped.
pub(super) async fn accept<P: Protocol>(
    mut door: Door,
    share: Rc<Share<P>>,
    siblings: Arc<[Sender<Command>]>,
) {
    actor::set_label("acceptor");
    let mut turn = share.number;
    let mut pause = Pause::default();
    let mut log = Throttle::default();
    loop {
        let (stream, peer) = match door.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                count(&share.counters.accept_errors);
                if let Some(unsaid) = log.say(now()) {
                    contain("a subscriber's log", || {
                        tracing::warn!(%error, unsaid, "connections cannot be accepted");
                    });
                }
                pause.after_error(&share).await;
                door.retry();
                continue;
            }
        };
        pause = Pause::default();
        let abroad = matches!(door, Door::Unix { .. });
        let place = loop {
            let seen = share.gate.releases();
            let place = match abroad {
                true => share.gate.take(share.gate.around(turn)),
                false => share.gate.take([share.number]),
            };
            if place.is_some() || share.settings.when_full == WhenFull::Refuse {
                break place;
            }
            poll_fn(|cx| share.gate.poll_release(cx, seen)).await;
        };
        let Some(place) = place else {
            count(&share.counters.refused);
            refuse(stream, &share.settings.refusal);
            continue;
        };
        turn = place.core() + 1;
        if abroad && place.core() != share.number {
            hand_on(&share, stream, place, &siblings);
        } else {
            share.serve(stream, peer, place);
        }
    }
}

/// Sends what is to be sent, if the kernel takes it at once, and closes.
fn refuse(mut stream: TcpStream, refusal: &[u8]) {
    if !refusal.is_empty() {
        // Whatever becomes of it: the connection is closed.
        let _ = stream.write_all(refusal.to_vec()).now_or_never();
    }
}

/// Gives a connection to the core of its place; when that has ended, it is served here.
fn hand_on<P: Protocol>(share: &Rc<Share<P>>, stream: TcpStream, place: Place, siblings: &[Sender<Command>]) {
    let stream = match stream.detach() {
        Ok(detached) => detached,
        Err(stream) => return share.serve(stream, Peer::Unix, place),
    };
    let sent = siblings[place.core()].send(Command::Serve(stream, place));
    if let Err(SendError::Closed(Command::Serve(stream, place))) = sent {
        share.serve(TcpStream::from(stream.attach()), Peer::Unix, place);
    }
}

/// The pause after an accept that failed.
#[derive(Default)]
struct Pause(Duration);

impl Pause {
    /// Waits, so that a lack of descriptors or memory is not asked about all the time. The end of a connection gives some
    /// back, and ends the wait.
    async fn after_error<P: Protocol>(&mut self, share: &Share<P>) {
        self.0 = (self.0 * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let seen = share.gate.releases();
        let released = poll_fn(|cx| share.gate.poll_release(cx, seen));
        if timeout(self.0, released).await.is_ok() {
            sleep(AFTER_A_RELEASE).await;
        }
    }
}

/// Says how often a thing that goes on is worth a word.
#[derive(Default)]
struct Throttle {
    next: Option<Instant>,
    unsaid: u64,
}

impl Throttle {
    /// Whether to say it now; if so, how often it was not said before.
    fn say(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.unsaid += 1;
            return None;
        }
        self.next = Some(now + LOG_EVERY);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_said_once_a_second() {
        let (mut throttle, begun) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.say(begun), Some(0));
        for tenth in 1..10 {
            assert_eq!(throttle.say(begun + LOG_EVERY * tenth / 10), None);
        }
        assert_eq!(throttle.say(begun + LOG_EVERY), Some(9));
        assert_eq!(throttle.say(begun + LOG_EVERY * 3), Some(0));
    }
}
