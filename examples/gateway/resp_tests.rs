//! What the decoder promises: the same values however the bytes arrive, bounded memory, no panic.

use proptest::prelude::*;

use super::*;

/// A value that owns its bytes, to be compared across buffers.
fn owned(value: &Value<'_>) -> Vec<u8> {
    format!("{value:?}").into_bytes()
}

/// Everything that a receiver makes of `pieces`, buffering as a receiver does: the values, and the error that ended
/// them.
fn receive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<Malformed>) {
    let (mut buffer, mut values) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decode(&buffer) {
                Ok(Some((value, taken))) => {
                    assert!((1..=buffer.len()).contains(&taken));
                    values.push(owned(&value));
                    buffer.drain(..taken);
                }
                Ok(None) => break,
                Err(malformed) => return (values, Some(malformed)),
            }
        }
    }
    (values, None)
}

fn decoded(input: &[u8]) -> Value<'_> {
    let (value, taken) = decode(input).expect("well formed").expect("complete");
    assert_eq!(taken, input.len());
    value
}

#[test]
fn each_kind_of_reply_is_understood() {
    assert_eq!(decoded(b"+OK\r\n"), Value::Simple(b"OK"));
    assert_eq!(decoded(b"-ERR no\r\n"), Value::Error(b"ERR no"));
    assert_eq!(decoded(b":-12\r\n"), Value::Integer(-12));
    assert_eq!(decoded(b"$5\r\na\r\nbc\r\n"), Value::Bulk(b"a\r\nbc"));
    assert_eq!(decoded(b"$0\r\n\r\n"), Value::Bulk(b""));
    assert_eq!(decoded(b"$-1\r\n"), Value::Null);
    assert_eq!(decoded(b"*-1\r\n"), Value::Null);
    assert_eq!(decoded(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), Value::Array(vec![b"GET", b"k"]));
}

#[test]
fn what_is_no_resp_or_too_much_of_it_is_refused_before_it_is_buffered() {
    let long_line = [b"+".as_slice(), &[b'a'; MAX_LINE + 1]].concat();
    let huge = format!("${}\r\n", MAX_BULK + 1);
    let cases: [(&[u8], Malformed); 10] = [
        (b"?", Malformed::Kind(b'?')),
        (b"+a\n", Malformed::Ending),
        (b"+a\rb", Malformed::Ending),
        (b"$1\r\nab", Malformed::Ending),
        (b":\r\n", Malformed::Number),
        (b":99999999999999999999\r\n", Malformed::Number),
        (b"$-2\r\n", Malformed::LongBulk(-2)),
        (b"*9\r\n", Malformed::LongArray(9)),
        (&long_line, Malformed::LongLine),
        (huge.as_bytes(), Malformed::LongBulk(MAX_BULK as i64 + 1)),
    ];
    for (input, expected) in cases {
        assert_eq!(decode(input), Err(expected), "{:?}", String::from_utf8_lossy(input));
    }
    let longest = [b"+".as_slice(), &[b'a'; MAX_LINE], b"\r\n"].concat();
    assert_eq!(decoded(&longest), Value::Simple(&[b'a'; MAX_LINE]));
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let text = "[ -~]{0,20}";
    prop_oneof![
        text.prop_map(|text| [b"+", text.as_bytes(), b"\r\n"].concat()),
        text.prop_map(|text| [b"-", text.as_bytes(), b"\r\n"].concat()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        Just(b"$-1\r\n".to_vec()),
        bytes().prop_map(|bytes| {
            let mut out = Vec::new();
            encode(&Value::Bulk(&bytes), &mut out);
            out
        }),
        prop::collection::vec(bytes(), 0..=MAX_ITEMS).prop_map(|parts| {
            let mut out = Vec::new();
            encode_command(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out);
            out
        }),
        // And what is none.
        prop::collection::vec(prop::sample::select(b"+-:$*\r\n019a".to_vec()), 0..12),
    ]
}

proptest! {
    #[test]
    fn how_the_bytes_are_cut_makes_no_difference(
        stream in prop::collection::vec(any_value(), 0..6).prop_map(|values| values.concat()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let whole = receive([stream.as_slice()]);
        prop_assert_eq!(&receive(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]])), &whole);
        prop_assert_eq!(&receive(stream.chunks(1)), &whole);
    }

    #[test]
    fn no_input_panics(input in prop::collection::vec(any::<u8>(), 0..200)) {
        receive(input.chunks(3));
    }

    #[test]
    fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..2000), number in any::<i64>()) {
        for value in [Value::Bulk(&bytes), Value::Integer(number), Value::Null, Value::Simple(b"PONG")] {
            let mut out = Vec::new();
            encode(&value, &mut out);
            prop_assert_eq!(decoded(&out), value);
        }
    }
}
