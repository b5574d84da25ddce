//! Bytes arrive: all of them, in order, whatever their number.

use corelet::net::{Received, Stream};
use corelet::runtime::{spawn, yield_now};

use crate::net_support::{
    AnyStream, Family, Random, assert_pattern, both, expect_end, expect_pattern, pair, pattern, pattern_at,
    poll_times,
};

/// Sends everything back until the peer ends.
async fn echo(mut stream: AnyStream) {
    while let Some(received) = stream.receive().await.unwrap() {
        let copy = received.to_vec();
        drop(received);
        stream.write_all(copy).await.0.unwrap();
    }
}

pub async fn bytes_of_every_size_come_back_from_an_echo() {
    for family in Family::all() {
        let (mut stream, peer) = pair(family).await;
        let server = spawn(echo(peer));
        for len in [0, 1, 2, 4095, 4096, 4097, 64 * 1024, 3 << 20] {
            let (mut reading, mut writing) = stream.split();
            let (written, got) = both(writing.write_all(pattern(0, len)), async {
                let mut got = Vec::with_capacity(len + 1);
                while got.len() < len {
                    let (count, back) = reading.read(got).await;
                    assert_ne!(count.unwrap(), 0, "{family:?}: the echo of {len} bytes ended early");
                    got = back;
                }
                got
            })
            .await;
            written.0.unwrap();
            assert_eq!(written.1.len(), len, "the buffer comes back whole");
            assert_eq!(got.len(), len, "{family:?}: no byte more");
            assert_pattern(0, &got);
        }
        stream.shutdown(std::net::Shutdown::Write).await.unwrap();
        expect_end(&mut stream).await;
        server.await.unwrap();
    }
}

pub async fn a_read_adds_to_what_the_buffer_holds() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        near.write_all("three").await.0.unwrap();
        let mut held = b"one two ".to_vec();
        held.reserve_exact(3);
        let (count, mut held) = far.read(held).await;
        let count = count.unwrap();
        assert_eq!(held.len(), 8 + count, "the count is of what was added");
        while held.len() < 13 {
            held.reserve_exact(13 - held.len());
            let count;
            (count, held) = far.read(held).await;
            count.unwrap();
        }
        assert_eq!(held, b"one two three");

        let (written, text) = near.write(String::from("boxed")).await;
        assert_eq!((written.unwrap(), text.as_str()), (5, "boxed"));
        near.flush().await.unwrap();
        let (count, filled) = far.read(vec![b'.'; 8].into_boxed_slice()).await;
        assert_eq!((count.unwrap(), &*filled), (5, &b"boxed..."[..]));
    }
}

pub async fn a_read_into_no_room_is_refused() {
    let (_near, mut far) = pair(Family::V4).await;
    let (count, _) = far.read(Vec::new()).await;
    assert_eq!(count.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

/// Small writes are posted, large ones are not, vectored ones go a third way; reads go by the armed receive or
/// directly. Whatever follows upon what, the order is that of the calls.
pub async fn bytes_keep_their_order_however_they_are_written_and_read() {
    const TOTAL: usize = 2 << 20;
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        let mut random = Random::logged("the writes");
        let writer = spawn(async move {
            let mut at = 0;
            while at < TOTAL {
                let len = match random.below(4) {
                    0 => 1 + random.below(40),
                    1 => 1 + random.below(4096),
                    2 => 4097 + random.below(1000),
                    _ => 4097 + random.below(100_000),
                };
                let len = (len as usize).min(TOTAL - at);
                match random.below(4) {
                    0 => at += near.write(pattern(at, len)).await.0.unwrap(),
                    1 => {
                        let half = len / 2;
                        let parts = vec![pattern(at, half), Vec::new(), pattern(at + half, len - half)];
                        at += near.write_vectored(parts).await.0.unwrap();
                    }
                    _ => {
                        near.write_all(pattern(at, len)).await.0.unwrap();
                        at += len;
                    }
                }
                if random.below(16) == 0 {
                    near.flush().await.unwrap();
                }
            }
        });
        let mut random = Random::logged("the reads");
        let mut at = 0;
        while at < TOTAL {
            match random.below(3) {
                0 => {
                    let received = far.receive().await.unwrap().unwrap();
                    assert_pattern(at, &received);
                    at += received.len();
                }
                1 => at += read_some(&mut far, at, 1 + random.below(100) as usize).await,
                _ => at += read_some(&mut far, at, 1 + random.below(100_000) as usize).await,
            }
        }
        expect_end(&mut far).await;
        writer.await.unwrap();
    }
}

async fn read_some(stream: &mut Stream, at: usize, room: usize) -> usize {
    let (count, buffer) = stream.read(Vec::with_capacity(room)).await;
    assert_ne!(count.unwrap(), 0);
    assert_pattern(at, &buffer);
    buffer.len()
}

pub async fn a_vectored_write_of_too_many_buffers_is_a_short_write() {
    const EACH: usize = 7;
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        let buffers: Vec<_> = (0..3000).map(|part| pattern(part * EACH, EACH)).collect();
        let (count, back) = near.write_vectored(buffers).await;
        let count = count.unwrap();
        assert!(count > 0 && count <= 1024 * EACH, "{family:?}: {count} bytes");
        assert_eq!(back.len(), 3000, "all buffers come back");
        expect_pattern(&mut far, 0, count).await;
        let (count, _) = near.write_vectored(Vec::<Vec<u8>>::new()).await;
        assert_eq!(count.unwrap(), 0);
    }
}

pub async fn both_halves_work_at_the_same_time() {
    const TOTAL: usize = 1 << 20;
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        let far = spawn(async move { send_and_receive(&mut far, TOTAL).await });
        send_and_receive(&mut near, TOTAL).await;
        far.await.unwrap();
    }
}

async fn send_and_receive(stream: &mut Stream, total: usize) {
    let (mut reading, mut writing) = stream.split();
    let write = async {
        let mut at = 0;
        while at < total {
            let len = (1 + at % 9000).min(total - at);
            writing.write_all(pattern(at, len)).await.0.unwrap();
            at += len;
        }
        writing.flush().await.unwrap();
    };
    let read = async {
        let mut at = 0;
        while at < total {
            let received = reading.receive().await.unwrap().unwrap();
            assert_pattern(at, &received);
            at += received.len();
        }
    };
    both(write, read).await;
}

pub async fn a_dropped_receive_loses_no_byte() {
    const TOTAL: usize = 400_000;
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        let mut random = Random::logged("the writes");
        let writer = spawn(async move {
            let mut at = 0;
            while at < TOTAL {
                let len = (1 + random.below(700) as usize).min(TOTAL - at);
                near.write_all(pattern(at, len)).await.0.unwrap();
                at += len;
                for _ in 0..random.below(3) {
                    yield_now().await;
                }
            }
        });
        let mut random = Random::logged("the drops");
        let (mut at, mut dropped) = (0, 0);
        // Held back, so that the kernel finds no buffer at times.
        let mut held: Vec<Received> = Vec::new();
        while at < TOTAL {
            match poll_times(far.receive(), random.below(4) as usize).await {
                None => {
                    dropped += 1;
                    yield_now().await;
                }
                Some(received) => {
                    let received = received.unwrap().unwrap();
                    assert_pattern(at, &received);
                    at += received.len();
                    held.push(received);
                }
            }
            if random.below(6) == 0 {
                held.clear();
            }
        }
        assert!(dropped > 0);
        writer.await.unwrap();
    }
}

pub async fn more_operations_than_the_queues_hold_all_end() {
    const PAIRS: usize = 600;
    let mut readers = Vec::new();
    let mut writers = Vec::new();
    for number in 0..PAIRS {
        let (near, mut far) = pair(Family::Unix).await;
        readers.push(spawn(async move {
            let (count, buffer) = far.read(Vec::with_capacity(8)).await;
            assert_eq!((count.unwrap(), buffer[0]), (1, pattern_at(number)));
            far.write_all(buffer).await.0.unwrap();
            far
        }));
        writers.push((number, near));
    }
    // All of these are started within one turn.
    let writers: Vec<_> = writers
        .into_iter()
        .map(|(number, mut near)| {
            spawn(async move {
                near.write_all(pattern(number, 1)).await.0.unwrap();
                expect_pattern(&mut near, number, 1).await;
            })
        })
        .collect();
    for task in writers {
        task.await.unwrap();
    }
    for task in readers {
        task.await.unwrap();
    }
}
