//! Bytes between two streams, and how they end.

use std::io;

use super::super::world::World;
use super::{Bench, POOLED, POOLED_MULTI, SEEDS};
use crate::runtime::driver::Posting;
use crate::runtime::driver::buffers::PooledBuf;
use crate::runtime::driver::op::{Completion, Request};

#[test]
fn a_cancelled_operation_ends_exactly_once() {
    let (mut cancelled, mut late) = (0, 0);
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let receive = bench.plain(&server, if seed % 2 == 0 { POOLED } else { POOLED_MULTI });
        bench.driver.submit().unwrap();
        let send = bench.send(&client, b"just now", true);
        if seed % 3 != 0 {
            bench.driver.submit().unwrap();
        }
        bench.driver.cancel(receive);
        bench.driver.cancel(receive);
        bench.settle();
        assert_eq!(bench.only(send), 8);
        let completions = bench.collect(receive);
        let terminal = completions.iter().filter(|completion| !completion.more).count();
        assert_eq!(terminal, 1, "seed {seed}: {completions:?}");
        let mut got: Vec<u8> = Vec::new();
        for completion in &completions {
            match bench.driver.claim(*completion) {
                Some(data) => got.extend_from_slice(&data),
                None => assert_eq!(completion.result, -libc::ECANCELED),
            }
        }
        if got.is_empty() {
            cancelled += 1
        } else {
            late += 1
        }
        // What the operation did not take is still there.
        drop(client);
        got.extend(bench.drain(&server).0);
        assert_eq!(got, b"just now", "seed {seed}");
        assert_eq!(bench.driver.stats().buffers_out, 0);
    }
    assert!(cancelled > 20 && late > 20, "both outcomes are to be seen: {cancelled} and {late}");
}

#[test]
fn concurrent_sends_keep_their_order() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let first = bench.send(&client, b"The quick brown fox ", true);
        let second = bench.send(&client, b"jumps over ", true);
        let third = bench.send(&client, b"the lazy dog", false);
        bench.settle();
        assert_eq!((bench.only(first), bench.only(second)), (20, 11));
        let count = bench.only(third) as usize;
        assert!((1..=12).contains(&count));
        drop(client);
        let (all, end) = bench.drain(&server);
        assert_eq!(all, &b"The quick brown fox jumps over the lazy dog"[..31 + count]);
        assert!(end.is_ok());
    }
}

#[test]
fn a_cancelled_send_does_not_overtake_the_one_before_it() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let first = bench.send(&client, b"first ", true);
        let second = bench.send(&client, b"second", false);
        bench.driver.cancel(second);
        bench.settle();
        assert_eq!(bench.only(first), 6);
        let sent = usize::try_from(bench.only(second)).unwrap_or(0);
        drop(client);
        assert_eq!(bench.drain(&server).0, &b"first second"[..6 + sent], "seed {seed}");
    }
}

#[test]
fn sends_and_receives_are_short_at_times() {
    let (mut short_sends, mut short_receives) = (0, 0);
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let send = bench.send(&client, b"whole or in part", false);
        bench.settle();
        let sent = bench.only(send);
        short_sends += u64::from(sent < 16);
        let receive = bench.plain(&server, POOLED);
        bench.settle();
        let [completion] = bench.collect(receive)[..] else { panic!("nothing came") };
        short_receives += u64::from(completion.result < sent);
        drop(bench.driver.claim(completion));
    }
    for short in [short_sends, short_receives] {
        assert!(short > 20 && short < SEEDS / 2, "{short}");
    }
}

#[test]
fn a_send_of_everything_goes_on_as_the_peer_makes_room() {
    let bytes: &'static [u8] = (0..150_000_u32).map(|i| (i % 251) as u8).collect::<Vec<u8>>().leak();
    for seed in 0..20 {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let send = bench.send(&client, bytes, true);
        bench.settle();
        assert!(!bench.driver.has_completion(send));
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let key = bench.plain(&server, POOLED);
            bench.settle();
            let [completion] = bench.collect(key)[..] else { panic!("nothing came") };
            got.extend_from_slice(&bench.driver.claim(completion).unwrap());
        }
        assert_eq!(got, bytes);
        assert_eq!(bench.only(send), bytes.len() as i32);
    }
}

#[test]
fn a_posted_send_is_decided_when_it_is_submitted_and_arrives_whole() {
    let (mut at_once, mut later) = (0, 0);
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        let Posting::Taken(key) = bench.driver.post(None, &client, &[7; 400]) else { panic!("refused") };
        assert!(bench.driver.posted_is_pending(key));
        bench.driver.submit().unwrap();
        if bench.driver.posted_is_pending(key) {
            later += 1
        } else {
            at_once += 1
        }
        bench.settle();
        assert!(!bench.driver.posted_is_pending(key), "seed {seed}");
        drop(client);
        assert_eq!(bench.drain(&server).0, [7; 400]);
    }
    assert!(later > 5 && at_once > 100, "both are to be seen: {later} and {at_once}");
}

#[test]
fn a_multishot_receive_ends_when_no_buffer_is_free_and_loses_nothing() {
    for seed in 0..SEEDS {
        let mut bench = Bench::on(&World::new(seed, 1), 0, 2);
        let (client, server) = bench.pair();
        let text: &'static [u8] = b"more than two small buffers of sixty-four bytes can take, whatever is done with them, by a good deal";
        assert_eq!(bench.sent(&client, text), text.len() as i32);
        assert_eq!(bench.sent(&client, text), text.len() as i32);
        let (mut held, mut got): (Vec<PooledBuf>, Vec<u8>) = (Vec::new(), Vec::new());
        let last = loop {
            let key = bench.plain(&server, POOLED_MULTI);
            bench.settle();
            let completions = bench.collect(key);
            held.extend(completions.iter().filter_map(|completion| bench.driver.claim(*completion)));
            match completions.last() {
                Some(Completion { result, more: false, .. }) if *result < 0 => break *result,
                Some(Completion { more: false, .. }) => {}
                other => panic!("no terminal completion: {other:?}"),
            }
        };
        assert_eq!((last, held.len(), bench.driver.stats().buffers_out), (-libc::ENOBUFS, 2, 2));
        held.drain(..).for_each(|data| got.extend_from_slice(&data));
        drop(client);
        got.extend(bench.drain(&server).0);
        assert_eq!(got, [text, text].concat().as_slice(), "seed {seed}");
    }
}

#[test]
fn closing_with_unread_bytes_resets_and_without_ends() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        bench.sent(&server, b"last words");
        bench.sent(&client, b"not read");
        if seed % 2 == 0 {
            bench.finish(&client, Request::Shutdown { how: libc::SHUT_WR });
            assert_eq!(bench.drain(&server).0, b"not read");
        }
        drop(server);
        let (got, end) = bench.drain(&client);
        assert_eq!(got, b"last words");
        match seed % 2 {
            0 => assert!(end.is_ok()),
            _ => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn bytes_for_a_closed_peer_end_in_an_error() {
    let mut swallowed = 0;
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        let (client, server) = bench.pair();
        drop(server);
        if bench.sent(&client, b"hello?") >= 0 {
            swallowed += 1;
            assert_eq!(bench.sent(&client, b"hello?"), -libc::EPIPE);
        }
    }
    assert!(swallowed > 20 && swallowed < SEEDS - 20);
}

#[test]
fn a_half_closed_stream_ends_one_way_and_serves_the_other() {
    let mut bench = Bench::new(5);
    let (client, server) = bench.pair();
    assert_eq!(bench.sent(&client, b"question"), 8);
    assert_eq!(bench.finish(&client, Request::Shutdown { how: libc::SHUT_WR }), 0);
    assert_eq!(bench.sent(&client, b"too late"), -libc::EPIPE);
    assert_eq!(bench.drain(&server).0, b"question");
    assert_eq!(bench.sent(&server, b"answer"), 6);
    drop(server);
    let (got, end) = bench.drain(&client);
    assert_eq!(got, b"answer");
    assert!(end.is_ok());
}

#[test]
fn a_poll_tells_what_holds() {
    let mut bench = Bench::new(6);
    let (client, server) = bench.pair();
    let bits = |bits: i16| bits as u32;
    let (readable, writable, hung_up) =
        (bits(libc::POLLIN), bits(libc::POLLOUT), bits(libc::POLLRDHUP | libc::POLLHUP));
    assert_eq!(
        bench.finish(&client, Request::Poll { events: readable | writable }),
        i32::from(libc::POLLOUT)
    );
    let poll = bench.plain(&server, Request::Poll { events: readable | hung_up });
    bench.settle();
    assert!(!bench.driver.has_completion(poll));
    bench.sent(&client, b"x");
    assert_eq!(bench.only(poll), i32::from(libc::POLLIN));
    drop(client);
    assert_eq!(
        bench.finish(&server, Request::Poll { events: readable | bits(libc::POLLRDHUP) }),
        i32::from(libc::POLLIN | libc::POLLRDHUP)
    );
}
