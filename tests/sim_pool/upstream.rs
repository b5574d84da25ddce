//! The server of a world: answers each request with its tag, late, never, or with something else besides.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corelet::net::{Received, TcpListener, TcpStream};
use corelet::runtime::{now, sleep, sleep_until, spawn};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::ledger::Ledger;
use super::random::Random;

/// A request is a tag; a reply is this and the tag.
pub const REPLY: u8 = 0xA5;
pub const REQUEST_SIZE: usize = 8;
pub const REPLY_SIZE: usize = 9;
/// What nobody asked for. Never mistaken for the beginning of a reply.
const STRAY: u8 = 0x5A;
pub const ADDRESS: &str = "127.0.0.1:7001";
/// Longer than the simulated network takes to tell of a close, with a few requests in front of it.
const NETWORK_DELAY: Duration = Duration::from_millis(30);

/// What the server is told from elsewhere in the world.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Close every connection.
    HangUp,
    /// Send bytes on every connection that nobody asked for.
    Stray,
    /// Do not listen until then.
    Refuse(Instant),
    Stop,
}

/// The way to the server and its connections.
#[derive(Clone, Debug, Default)]
pub struct Orders(Arc<Mutex<Vec<UnboundedSender<Order>>>>);

impl Orders {
    pub fn give(&self, order: Order) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.unbounded_send(order).is_ok());
    }

    fn listen(&self) -> UnboundedReceiver<Order> {
        let (sender, receiver) = unbounded();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }
}

/// Serves on the current core until it is told to stop.
pub async fn serve(ledger: Ledger, orders: Orders, ready: oneshot::Sender<()>) {
    let address: SocketAddr = ADDRESS.parse().unwrap();
    let mut seeds = Random::new(ledger.plan.seed ^ 0x7570);
    let mut told = orders.listen();
    let mut listener = TcpListener::bind(address).unwrap();
    let _ = ready.send(());
    loop {
        let next = match select(told.next(), pin!(listener.accept())).await {
            Either::Left((order, _)) => Either::Left(order),
            Either::Right((accepted, _)) => Either::Right(accepted),
        };
        match next {
            Either::Left(Some(Order::Refuse(until))) => {
                drop(listener);
                sleep_until(until).await;
                // The old one goes with its accept, which may take its time to end.
                listener = loop {
                    match TcpListener::bind(address) {
                        Ok(listener) => break listener,
                        Err(_) => sleep(Duration::from_micros(100)).await,
                    }
                };
            }
            Either::Left(Some(Order::HangUp | Order::Stray)) => {}
            Either::Left(Some(Order::Stop) | None) => return,
            Either::Right(Err(_)) => {}
            Either::Right(Ok(stream)) => {
                // One that was reset meanwhile has no address any more.
                let Ok(peer) = stream.peer_addr() else { continue };
                let id = ledger.number();
                ledger.book().upstream.insert(id, peer);
                check_count(&ledger);
                let entry = Entry { ledger: ledger.clone(), id };
                let conversation = Conversation {
                    entry,
                    random: Random::new(seeds.draw()),
                    acts: BTreeMap::new(),
                    planned: 0,
                    unread: Vec::new(),
                    last_reply: now(),
                };
                spawn(conversation.run(stream, orders.listen())).detach();
            }
        }
    }
}

struct Entry {
    ledger: Ledger,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.book().upstream.remove(&self.id);
    }
}

/// More connections of a shard than it has slots may be seen only for as long as the news of a close is on its way.
fn check_count(ledger: &Ledger) {
    let slots = ledger.book().slots.1;
    let (counts, _) = ledger.upstream_counts();
    if counts.iter().all(|count| *count <= slots) {
        return;
    }
    let seen: BTreeSet<u64> = ledger.book().upstream.keys().copied().collect();
    let ledger = ledger.clone();
    spawn(async move {
        sleep(NETWORK_DELAY).await;
        let mut counts = vec![0; ledger.plan.cores];
        let book = ledger.book();
        for (_, address) in book.upstream.iter().filter(|(id, _)| seen.contains(id)) {
            if let Some(shard) = book.shard_of.get(address) {
                counts[*shard] += 1;
            }
        }
        drop(book);
        if counts.iter().any(|count| *count > slots) {
            ledger.fault(format!("the upstream sees {counts:?} connections, and a shard has {slots} slots"));
        }
    })
    .detach();
}

enum Event {
    Order(Option<Order>),
    Due,
    Received(io::Result<Option<Received>>),
}

enum Act {
    Send(Vec<u8>),
    HangUp,
}

/// One connection. It always listens, so that it hears of the client's close at once.
struct Conversation {
    entry: Entry,
    random: Random,
    acts: BTreeMap<(Instant, u64), Act>,
    planned: u64,
    unread: Vec<u8>,
    /// When the last reply will be complete. Nothing is sent in between its halves.
    last_reply: Instant,
}

impl Conversation {
    async fn run(mut self, mut stream: TcpStream, mut told: UnboundedReceiver<Order>) {
        loop {
            while let Some(act) = self.acts.first_entry().filter(|act| act.key().0 <= now()) {
                match act.remove() {
                    Act::HangUp => return,
                    Act::Send(bytes) => {
                        if stream.write_all(bytes).await.0.is_err() {
                            return;
                        }
                    }
                }
            }
            let due = self.acts.first_key_value().map(|((at, _), _)| *at);
            let act = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            let event = {
                let (order, received) = (told.next(), pin!(stream.receive()));
                match select(select(order, pin!(act)), received).await {
                    Either::Left((Either::Left((order, _)), _)) => Event::Order(order),
                    Either::Left((Either::Right(_), _)) => Event::Due,
                    Either::Right((received, _)) => Event::Received(received),
                }
            };
            match event {
                Event::Order(Some(Order::HangUp | Order::Stop) | None) => return,
                Event::Order(Some(Order::Stray)) => self.send_stray(),
                Event::Order(Some(Order::Refuse(_))) | Event::Due => {}
                Event::Received(Ok(Some(received))) => {
                    self.unread.extend_from_slice(&received);
                    while self.unread.len() >= REQUEST_SIZE {
                        let tag: Vec<u8> = self.unread.drain(..REQUEST_SIZE).collect();
                        self.answer(&tag);
                    }
                }
                Event::Received(Ok(None) | Err(_)) => return,
            }
        }
    }

    fn answer(&mut self, tag: &[u8]) {
        let ledger = self.entry.ledger.clone();
        let temper = ledger.plan.temper;
        if ledger.strikes(temper.silent) {
            return;
        }
        let delay = match ledger.strikes(temper.slow) {
            true => self.random.up_to(Duration::from_millis(30)),
            false if self.random.one_in(2) => Duration::ZERO,
            false => self.random.up_to(Duration::from_micros(400)),
        };
        // Replies keep their order, whatever their delays.
        self.last_reply = self.last_reply.max(now() + delay);
        let mut reply = vec![REPLY];
        reply.extend(tag);
        if self.random.one_in(4) {
            let rest = reply.split_off(1 + self.random.below(REPLY_SIZE - 1));
            self.plan(self.last_reply, Act::Send(reply));
            self.last_reply += self.random.up_to(Duration::from_micros(200));
            reply = rest;
        }
        if ledger.strikes(temper.hangs_up) {
            return self.plan(self.last_reply, Act::HangUp);
        }
        self.plan(self.last_reply, Act::Send(reply));
        if ledger.strikes(temper.hangs_up) {
            let later = self.random.up_to(Duration::from_millis(10));
            self.plan(self.last_reply + later, Act::HangUp);
        }
        if ledger.strikes(temper.strays) {
            self.last_reply += self.random.some_time();
            self.send_stray();
        }
    }

    fn send_stray(&mut self) {
        let bytes = vec![STRAY; 1 + self.random.below(12)];
        self.last_reply = self.last_reply.max(now());
        self.plan(self.last_reply, Act::Send(bytes));
    }

    fn plan(&mut self, at: Instant, act: Act) {
        self.planned += 1;
        self.acts.insert((at, self.planned), act);
    }
}
