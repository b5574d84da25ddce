//! Whatever bytes the ready codecs get, however they are cut: the same frames, the same end, within the limits.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "service_codec/mod.rs"]
mod feeding;
mod support;

use bytes::{Bytes, BytesMut};
use corelet::service::codec::{self, MAX_FRAME, MAX_LINE, RespCodec, RespError, Value};
use feeding::{Accepted, Event, Frame, KINDS, Kind, check_round_trip, encoded, outcome};
use proptest::prelude::*;
use support::watched;
use tokio_util::codec::{Decoder, Encoder};

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(KINDS.to_vec())
}

/// Small limits, so that they are met.
fn any_accepted() -> impl Strategy<Value = Accepted> {
    (0..80_usize, 1..12_usize, 0..4_u8).prop_map(|(frame, items, depth)| Accepted { frame, items, depth })
}

fn any_value() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..30).prop_map(Bytes::from);
    let leaf = prop_oneof![
        "[ -~]{0,12}".prop_map(Value::simple),
        "[ -~]{0,12}".prop_map(Value::error),
        any::<i64>().prop_map(Value::Integer),
        (-2..3_i64).prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        Just(Value::NullArray),
    ];
    leaf.prop_recursive(5, 24, 6, |item| prop::collection::vec(item, 0..6).prop_map(Value::Array))
}

/// What is well formed in some protocol, or nearly, or not at all.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        any_value().prop_map(|value| encoded(&value).to_vec()),
        bytes(60).prop_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()),
        bytes(60).prop_map(|line| [&line[..], b"\n"].concat()),
        "[a-z]{0,60}".prop_map(|line| format!("{line}\r\n").into_bytes()),
        "[-+:$*]{0,3}[0-9]{0,6}[\r\n]{0,3}".prop_map(String::into_bytes),
        bytes(12),
    ]
}

fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (prop::collection::vec(any_piece(), 0..6), damage).prop_map(|(pieces, damage)| {
        let mut input = pieces.concat();
        if let Some((place, byte)) = damage
            && !input.is_empty()
        {
            let place = place.index(input.len());
            input[place] = byte;
        }
        input
    })
}

const ROOMY: Accepted = Accepted { frame: 4096, items: 512, depth: 16 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_and_end_are_the_same_however_the_bytes_are_cut(
        kind in any_kind(),
        accepted in prop_oneof![Just(ROOMY), any_accepted()],
        input in any_input(),
        cuts in prop::collection::vec(1..20_usize, 1..8),
    ) {
        let whole = outcome(kind, accepted, &input, &[]);
        prop_assert_eq!(&outcome(kind, accepted, &input, &cuts), &whole);
        prop_assert_eq!(&outcome(kind, accepted, &input, &[1]), &whole);
    }

    #[test]
    fn what_comes_out_goes_in_again(kind in any_kind(), input in any_input()) {
        check_round_trip(kind, ROOMY, &outcome(kind, ROOMY, &input, &[]));
    }

    #[test]
    fn values_come_back_as_they_were_sent(values in prop::collection::vec(any_value(), 1..4), cut in 1..20_usize) {
        let mut wire = BytesMut::new();
        for value in &values {
            wire.extend_from_slice(&encoded(value));
        }
        let expected: Vec<_> = values.into_iter().map(|value| Event::Frame(Frame::Value(value))).collect();
        prop_assert_eq!(outcome(Kind::Resp, ROOMY, &wire, &[cut]), expected);
    }
}

/// Inputs that have broken codecs elsewhere: what comes of each is the same in all pieces, and short.
#[test]
fn nasty_inputs_end_quietly() {
    let many = |piece: &str, times| piece.repeat(times).into_bytes();
    let huge = usize::MAX.to_string();
    let inputs: Vec<Vec<u8>> = vec![
        b"*1000000000\r\n".to_vec(),
        b"*-1000000000\r\n".to_vec(),
        b"$999999999\r\n".to_vec(),
        b"$-0\r\n\r\n".to_vec(),
        format!("${huge}\r\n").into_bytes(),
        format!("*{huge}\r\n").into_bytes(),
        format!("${}\r\n", i64::MAX).into_bytes(),
        format!("${}\r\n", i64::MIN).into_bytes(),
        format!("*{}\r\n", u64::from(u32::MAX) + 1).into_bytes(),
        many("*1\r\n", 50_000),
        many("*2\r\n", 50_000),
        [b"*4000\r\n".to_vec(), many("*0\r\n", 4000)].concat(),
        many(":", 70_000),
        many("+", 70_000),
        many("+\r", 40_000),
        many("$0\r", 40_000),
        many("\r", 70_000),
        many("\n", 70_000),
        many("\r\n", 35_000),
        many("é", 40_000),
        b"\xff\xff\xff\xff".to_vec(),
        b"\x00\x00\x00\x00".repeat(1000),
        b"\x00\x01\x00\x00".to_vec(),
        b"\x00\x01\x00\x01".to_vec(),
        b"\x80\x00\x00\x00".to_vec(),
        b"$5\r\nhello+OK\r\n".to_vec(),
        b"+OK\n+OK\r\n".to_vec(),
        b"\xef\xbb\xbf+OK\r\n".to_vec(),
        b"+\0\r\n".to_vec(),
    ];
    let accepted = Accepted { frame: MAX_FRAME, items: 4096, depth: 8 };
    for input in inputs {
        for kind in KINDS {
            let whole = outcome(kind, accepted, &input, &[]);
            for cuts in [&[1][..], &[2, 3], &[4095]] {
                let name = String::from_utf8_lossy(&input[..input.len().min(20)]);
                assert!(
                    outcome(kind, accepted, &input, cuts) == whole,
                    "{kind:?}, {name:?}, cut by {cuts:?}"
                );
            }
        }
    }
}

/// If a piece made the codec look at all again, this would take hours.
#[test]
fn long_values_are_looked_at_once() {
    let items = 200_000;
    let array = encoded(&Value::Array(vec![Value::bulk("a"); items]));
    let text = encoded(&Value::simple(vec![b'a'; 2_000_000]));
    watched(|| {
        for wire in [&array, &text] {
            let mut codec = RespCodec::new().max_frame(1 << 21).max_items(items + 1);
            let mut buffer = BytesMut::new();
            for byte in &wire[..wire.len() - 1] {
                buffer.extend_from_slice(&[*byte]);
                assert_eq!(codec.decode(&mut buffer).unwrap(), None);
            }
            buffer.extend_from_slice(b"\n");
            assert!(codec.decode(&mut buffer).unwrap().is_some());
        }
        let (mut codec, mut buffer) = (codec::ByteLinesCodec::new().max_line(2_000_000), BytesMut::new());
        for _ in 0..2_000_000 {
            buffer.extend_from_slice(b"a");
            assert_eq!(codec.decode(&mut buffer).unwrap(), None);
        }
    });
}

#[test]
fn the_default_bounds_are_met_exactly() {
    let mut resp = RespCodec::new();
    let longest = Value::bulk(vec![7; MAX_FRAME - 10]);
    let wire = encoded(&longest);
    assert_eq!(wire.len(), MAX_FRAME);
    assert_eq!(resp.decode(&mut wire.clone()).unwrap(), Some(longest));
    let wire = encoded(&Value::bulk(vec![7; MAX_FRAME - 9]));
    assert!(matches!(resp.decode(&mut wire.clone()), Err(RespError::TooLong { limit: MAX_FRAME })));

    let line = vec![b'a'; MAX_LINE];
    for end in ["\n", "\r\n"] {
        let mut bytes = codec::ByteLinesCodec::new();
        let mut wire = BytesMut::from(&[&line[..], end.as_bytes()].concat()[..]);
        assert_eq!(bytes.decode(&mut wire).unwrap(), Some(line.clone().into()));
        let mut wire = BytesMut::from(&[&line[..], b"a", end.as_bytes()].concat()[..]);
        assert!(bytes.decode(&mut wire).is_err());
    }
    let mut wire = BytesMut::from(&[&line[..], b"\n"].concat()[..]);
    assert_eq!(codec::lines().decode(&mut wire).unwrap().map(String::into_bytes), Some(line));

    let mut frames = codec::length_delimited();
    let mut wire = BytesMut::new();
    frames.encode(Bytes::from(vec![7; MAX_FRAME - 4]), &mut wire).unwrap();
    assert_eq!(wire.len(), MAX_FRAME);
    assert_eq!(frames.decode(&mut wire).unwrap().map(|frame| frame.len()), Some(MAX_FRAME - 4));
    frames.encode(Bytes::from(vec![7; MAX_FRAME - 3]), &mut wire).unwrap_err();
    wire.extend_from_slice(&(MAX_FRAME as u32 - 3).to_be_bytes());
    frames.decode(&mut wire).unwrap_err();
}

#[test]
fn lines_that_would_be_read_as_two_are_not_sent() {
    let (mut codec, mut wire) = (codec::ByteLinesCodec::new(), BytesMut::new());
    for line in ["a\nb", "a\r\nb", "\n", "a\r", "\r"] {
        assert!(matches!(codec.encode(line, &mut wire), Err(codec::LineError::LineEnd)), "{line:?}");
        assert!(wire.is_empty());
    }
    codec.encode("a\rb", &mut wire).unwrap();
    assert_eq!(wire, "a\rb\n");
}

#[test]
fn a_line_that_is_too_long_is_an_error_for_good() {
    let (mut codec, mut wire) = (codec::ByteLinesCodec::new().max_line(3), BytesMut::from("four\nok\n"));
    for _ in 0..2 {
        assert!(matches!(codec.decode(&mut wire), Err(codec::LineError::TooLong { limit: 3 })));
    }
}
