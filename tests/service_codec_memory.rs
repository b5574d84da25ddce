//! The memory that decoders hold is bounded by their limits, whatever arrives; and a frame costs no more allocations than
//! what it is made of.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "service_codec/mod.rs"]
mod feeding;
#[path = "service_codec/held.rs"]
mod held;

use bytes::BytesMut;
use corelet::service::codec::{self, ByteLinesCodec, RespCodec, Value};
use feeding::{Accepted, KINDS, feed, most_held};
use proptest::prelude::*;
use tokio_util::codec::{Decoder, Encoder};

#[global_allocator]
static ALLOCATOR: held::Counting = held::Counting;

/// What is shown of an input, if it is too much.
fn start_of(input: &[u8]) -> String {
    String::from_utf8_lossy(&input[..input.len().min(40)]).into_owned()
}

fn check_memory(accepted: Accepted, input: &[u8], cuts: &[usize]) {
    let longest_piece = cuts.iter().copied().max().unwrap_or(usize::MAX).min(input.len());
    for kind in KINDS {
        let bound = most_held(accepted, longest_piece);
        let held = held::most_held(|| feed(kind, accepted, input, cuts, drop));
        assert!(
            held <= bound,
            "{kind:?} held {held} bytes where {bound} are allowed, for {:?}",
            start_of(input)
        );
    }
}

#[test]
fn announced_lengths_and_endless_frames_cost_no_more_than_the_limits_allow() {
    let accepted = Accepted { frame: 1000, items: 50, depth: 4 };
    for begin in [
        "*1000000000\r\n",
        "$999999999\r\n",
        "*50\r\n",
        "*49\r\n",
        "*49\r\n$900\r\n",
        "$900\r\n",
        "+",
        "-",
        ":",
        "$",
        "*",
        "*1\r\n",
        "*0\r\n",
        "*49\r\n*0\r\n",
        ":1\r\n",
        "\0\0\x03\x7f",
        "\0\0\x03\u{e8}",
        "\u{ff}\u{ff}",
        "a",
        "\n",
    ] {
        for filling in ["a", "\r", "*0\r\n", ":1\r\n", "$0\r\n\r\n", "\0", "*1\r\n", "a\n", "$-1\r\n"] {
            let input = [begin.as_bytes(), &filling.as_bytes().repeat(1000)].concat();
            for cuts in [&[1][..], &[7], &[4096]] {
                check_memory(accepted, &input, cuts);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_input_makes_a_decoder_hold_more_than_its_bound(
        input in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$:+-\r\n0123".to_vec())], 0..2000),
        cuts in prop::collection::vec(1..100_usize, 1..6),
    ) {
        check_memory(Accepted { frame: 100, items: 10, depth: 3 }, &input, &cuts);
    }
}

/// The allocations of one more round when the buffers have been there for some.
fn allocations_of(mut round: impl FnMut()) -> u64 {
    for _ in 0..10 {
        round();
    }
    let before = held::allocations();
    for _ in 0..100 {
        round();
    }
    let all = held::allocations() - before;
    assert_eq!(all % 100, 0, "{all} in 100 rounds");
    all / 100
}

#[test]
fn a_frame_costs_the_allocations_that_it_is_made_of() {
    let mut resp = RespCodec::new();
    let mut wire = BytesMut::with_capacity(4096);
    let command = || {
        resp.encode(["SET", "key", "value"], &mut wire).unwrap();
        let value = resp.decode(&mut wire).unwrap().unwrap();
        assert_eq!(value.items().len(), 3);
    };
    assert_eq!(allocations_of(command), 1, "a command is an array");

    let mut resp = RespCodec::new();
    let reply = || {
        for reply in [Value::simple("OK"), Value::Integer(i64::MIN), Value::Null, Value::bulk("value")] {
            resp.encode(&reply, &mut wire).unwrap();
            assert_eq!(resp.decode(&mut wire).unwrap(), Some(reply));
        }
    };
    assert_eq!(allocations_of(reply), 0, "other values are parts of the buffer");

    let mut lines = ByteLinesCodec::new();
    let line = || {
        lines.encode("a line", &mut wire).unwrap();
        assert_eq!(lines.decode(&mut wire).unwrap().unwrap(), "a line");
    };
    assert_eq!(allocations_of(line), 0, "a line is a part of the buffer");

    let mut lines = codec::lines();
    let line = || {
        lines.encode("a line", &mut wire).unwrap();
        assert_eq!(lines.decode(&mut wire).unwrap().unwrap(), "a line");
    };
    assert_eq!(allocations_of(line), 1, "a text is copied");

    let mut frames = codec::length_delimited();
    let frame = || {
        frames.encode(&b"a frame"[..], &mut wire).unwrap();
        assert_eq!(frames.decode(&mut wire).unwrap().unwrap(), "a frame");
    };
    assert_eq!(allocations_of(frame), 0, "a frame is a part of the buffer");
}

#[test]
fn a_codec_keeps_no_memory_of_a_large_value() {
    let mut codec = RespCodec::new();
    let wire = feeding::encoded(&Value::Array(vec![Value::Null; 4000]));
    let before = held::held();
    let mut buffer = wire.clone();
    drop(codec.decode(&mut buffer).unwrap().unwrap());
    drop(buffer);
    let kept = held::held() - before;
    assert!(kept <= 1024, "{kept} bytes");
}
