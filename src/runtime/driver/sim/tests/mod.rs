//! What the simulated driver promises, operation by operation, over many seeds.

mod streams;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use socket2::{Domain, SockAddr};

use super::world::{SharedWorld, World, lock};
use super::{SimDescriptor, SimPort};
use crate::runtime::driver::buffers::BufferPool;
use crate::runtime::driver::descriptor::Descriptor;
use crate::runtime::driver::op::{Aftermath, Completion, OpKey, Request};
use crate::runtime::driver::socket::ListenOptions;
use crate::runtime::driver::{Driver, Posting};

const SEEDS: u64 = 200;
const POOLED: Request = Request::ReceivePooled { multishot: false, wait_first: false };
const POOLED_MULTI: Request = Request::ReceivePooled { multishot: true, wait_first: false };

/// One simulated core without an executor.
struct Bench {
    world: SharedWorld,
    driver: Driver,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        Bench::on(&World::new(seed, 1), 0, 8)
    }

    fn on(world: &SharedWorld, core: usize, buffers: u16) -> Bench {
        let pool = BufferPool::new(buffers, 64, false).unwrap();
        let port = SimPort::new(world, core, Rc::clone(&pool));
        Bench { world: world.clone(), driver: Driver::simulated(port, pool) }
    }

    /// Lets things happen until nothing is left to happen.
    fn settle(&mut self) {
        loop {
            self.driver.submit().unwrap();
            self.driver.take_aftermath(&mut Aftermath::default());
            if self.driver.has_staged() || self.driver.has_news() {
                continue;
            }
            let mut world = lock(&self.world);
            match world.next_due() {
                Some(at) => world.advance_to(at),
                None => return,
            }
        }
    }

    fn plain(&mut self, on: &Descriptor, request: Request) -> OpKey {
        self.driver.start_plain(on, request)
    }

    /// All completions that have arrived, of which the last one may be terminal.
    fn collect(&mut self, key: OpKey) -> Vec<Completion> {
        std::iter::from_fn(|| self.driver.ops.try_next(key)).collect()
    }

    /// The one completion of an operation.
    fn only(&mut self, key: OpKey) -> i32 {
        match self.collect(key)[..] {
            [Completion { result, more: false, .. }] => result,
            ref other => panic!("expected one terminal completion, got {other:?}"),
        }
    }

    fn finish(&mut self, on: &Descriptor, request: Request) -> i32 {
        let key = self.plain(on, request);
        self.settle();
        self.only(key)
    }

    #[allow(unsafe_code)]
    fn send(&mut self, on: &Descriptor, bytes: &'static [u8], all: bool) -> OpKey {
        let request = Request::Send { from: bytes.as_ptr(), len: bytes.len() as u32, all };
        // SAFETY: a static is always valid.
        unsafe { self.driver.start(on, request, None) }
    }

    fn sent(&mut self, on: &Descriptor, bytes: &'static [u8]) -> i32 {
        let key = self.send(on, bytes, true);
        self.settle();
        self.only(key)
    }

    /// The buffer moves into the operation's cell at once, so it is only good for operations that get nothing.
    #[allow(unsafe_code)]
    fn receive_nowhere(&mut self, on: &Descriptor) -> OpKey {
        let mut buffer = Box::new([0_u8; 64]);
        let request = Request::Receive { into: buffer.as_mut_ptr(), len: 64 };
        // SAFETY: the boxed buffer lives in the operation's cell until the terminal completion.
        unsafe { self.driver.start(on, request, Some(buffer)) }
    }

    /// Everything that arrives up to the end of the stream or an error.
    fn drain(&mut self, on: &Descriptor) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        loop {
            let key = self.plain(on, POOLED);
            self.settle();
            let [completion] = self.collect(key)[..] else { panic!("the stream did not end") };
            match (self.driver.claim(completion), completion.into_result()) {
                (Some(data), Ok(_)) => all.extend_from_slice(&data),
                (_, Ok(count)) => {
                    assert_eq!(count, 0);
                    return (all, Ok(()));
                }
                (_, Err(error)) => return (all, Err(error)),
            }
        }
    }

    fn listen(&self) -> (Descriptor, SockAddr) {
        let anywhere = SockAddr::from("127.0.0.1:0".parse::<SocketAddr>().unwrap());
        let options = ListenOptions { backlog: 0, reuse_port: false, mode: None };
        let listener = self.driver.listen(&anywhere, options).unwrap();
        let address = self.driver.local_address(&listener).unwrap();
        (listener, address)
    }

    fn connect(&mut self, to: &SockAddr) -> (Descriptor, OpKey) {
        let stream = self.driver.open_stream(Domain::IPV4).unwrap();
        let key = self.driver.start_connect(&stream, to.clone());
        (stream, key)
    }

    fn accept(&mut self, listener: &Descriptor) -> Descriptor {
        let number = self.finish(listener, Request::Accept { multishot: false });
        assert!(number >= 0, "accept failed: {number}");
        self.driver.adopt(number)
    }

    fn pair(&mut self) -> (Descriptor, Descriptor) {
        let (listener, address) = self.listen();
        let (client, key) = self.connect(&address);
        self.settle();
        assert_eq!(self.only(key), 0);
        (client, self.accept(&listener))
    }

    fn open_sockets(&self) -> usize {
        lock(&self.world).open_sockets()
    }
}

#[test]
fn a_simulated_descriptor_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<SimDescriptor>();
}

#[test]
fn what_was_submitted_counts_as_consumed() {
    let mut bench = Bench::new(1);
    let (client, server) = bench.pair();
    let receive = bench.plain(&server, POOLED);
    bench.driver.cancel(receive);
    assert!(bench.driver.has_staged());
    bench.driver.submit().unwrap();
    assert!(!bench.driver.has_staged());
    drop(client);
}

#[test]
fn nobody_listens_is_a_refusal() {
    let mut bench = Bench::new(2);
    let (listener, address) = bench.listen();
    drop(listener);
    let (_stream, key) = bench.connect(&address);
    bench.settle();
    assert_eq!(bench.only(key), -libc::ECONNREFUSED);
}

#[test]
fn an_address_is_taken_once_for_each_core() {
    let world = World::new(3, 2);
    let (first, second) = (Bench::on(&world, 0, 2), Bench::on(&world, 1, 2));
    let (_listener, address) = first.listen();
    let options = ListenOptions { backlog: 0, reuse_port: true, mode: None };
    let taken = first.driver.listen(&address, options).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
    second.driver.listen(&address, options).unwrap();
}

#[test]
fn a_full_accept_queue_keeps_others_waiting_until_one_is_taken() {
    let mut bench = Bench::new(4);
    let (listener, address) = bench.listen();
    let attempts: Vec<_> = (0..129).map(|_| bench.connect(&address)).collect();
    bench.settle();
    let waiting =
        |bench: &Bench| attempts.iter().filter(|(_, key)| !bench.driver.has_completion(*key)).count();
    assert_eq!(waiting(&bench), 1);
    let _accepted = bench.accept(&listener);
    bench.settle();
    assert_eq!(waiting(&bench), 0);
}

#[test]
fn every_kind_of_waiting_operation_can_be_cancelled() {
    let filling: &'static [u8] = vec![7; 100_000].leak();
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let (listener, address) = bench.listen();
        lock(&bench.world).set_door(&address, super::Door::Unreachable);
        let (stream, connect) = bench.connect(&address);
        let accept = bench.plain(&listener, Request::Accept { multishot: true });
        let poll = bench.plain(&client, Request::Poll { events: libc::POLLIN as u32 });
        let receive = bench.receive_nowhere(&client);
        let send = bench.send(&client, filling, true);
        let behind = bench.send(&client, filling, false);
        bench.settle();
        for key in [connect, accept, poll, receive, send, behind] {
            assert!(!bench.driver.has_completion(key), "seed {seed}");
            bench.driver.cancel(key);
        }
        bench.settle();
        for key in [connect, accept, poll, receive, behind] {
            assert_eq!(bench.only(key), -libc::ECANCELED, "seed {seed}");
        }
        let part = bench.only(send);
        assert!(part > 0 && part < filling.len() as i32, "seed {seed}: {part}");
        drop(client);
        assert_eq!(bench.drain(&server).0.len(), part as usize);
        drop((stream, listener, server));
        assert_eq!((bench.driver.stats().in_flight, bench.open_sockets()), (0, 0));
    }
}

#[test]
fn a_multishot_accept_takes_all_who_come() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (listener, address) = bench.listen();
        let clients: Vec<_> = (0..10).map(|_| bench.connect(&address)).collect();
        let mut accepted = BTreeSet::new();
        while accepted.len() < clients.len() {
            let key = bench.plain(&listener, Request::Accept { multishot: true });
            bench.settle();
            accepted.extend(bench.collect(key).into_iter().map(|completion| completion.result));
            bench.driver.abandon(key, None);
        }
        assert!(accepted.iter().all(|number| *number > 0));
        bench.settle();
        assert_eq!(bench.driver.stats().in_flight, 10, "the completions of the connects");
    }
}

#[test]
fn a_connection_that_was_accepted_for_nobody_is_closed() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (listener, address) = bench.listen();
        let accept = bench.plain(&listener, Request::Accept { multishot: false });
        let (client, connect) = bench.connect(&address);
        bench.driver.submit().unwrap();
        bench.driver.abandon(accept, None);
        bench.settle();
        assert_eq!(bench.only(connect), 0);
        drop(listener);
        let (got, _) = bench.drain(&client);
        assert!(got.is_empty());
        drop(client);
        assert_eq!((bench.open_sockets(), bench.driver.stats().in_flight), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_closing_driver_ends_everything_and_closes_its_sockets() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let (listener, _) = bench.listen();
        let accept = bench.plain(&listener, Request::Accept { multishot: true });
        let receive = bench.receive_nowhere(&server);
        bench.driver.submit().unwrap();
        let staged = bench.plain(&client, POOLED);
        let abandoned = bench.receive_nowhere(&client);
        bench.driver.abandon(abandoned, None);
        bench.driver.shut_down();
        for key in [accept, receive, staged] {
            assert_eq!(bench.only(key), -libc::ECANCELED);
        }
        let refused = bench.plain(&client, POOLED);
        assert_eq!(bench.only(refused), -libc::ECANCELED);
        drop((client, server, listener));
        assert_eq!((bench.open_sockets(), bench.driver.stats().in_flight), (0, 0));
        assert_eq!(lock(&bench.world).next_due(), None);
    }
}

#[test]
fn a_posted_send_that_was_not_finished_does_not_keep_a_closing_driver_from_closing_its_socket() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        assert!(matches!(bench.driver.post(None, &client, &[7; 400]), Posting::Taken(_)));
        bench.driver.shut_down();
        drop((client, server));
        assert_eq!(bench.open_sockets(), 0, "seed {seed}");
    }
}
