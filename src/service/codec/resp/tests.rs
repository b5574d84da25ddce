use bytes::{Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::{RespCodec, RespError, Value};

fn decode_by(codec: &mut RespCodec, input: &[u8], piece: usize) -> (Vec<Value>, Option<String>) {
    let (mut buffer, mut values) = (BytesMut::new(), Vec::new());
    for piece in input.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => return (values, Some(error.to_string())),
            }
        }
    }
    match codec.decode_eof(&mut buffer) {
        Ok(Some(value)) => unreachable!("{value:?} was complete before"),
        Ok(None) => (values, None),
        Err(error) => (values, Some(error.to_string())),
    }
}

/// What `input` decodes to, however it is cut.
fn decoded(codec: &RespCodec, input: &[u8]) -> (Vec<Value>, Option<String>) {
    let whole = decode_by(&mut codec.clone(), input, input.len().max(1));
    for piece in 1..input.len().min(80) {
        assert_eq!(decode_by(&mut codec.clone(), input, piece), whole, "in pieces of {piece}");
    }
    whole
}

fn bulk(bytes: &'static str) -> Value {
    Value::bulk(bytes)
}

#[test]
fn each_kind_of_value_is_understood() {
    let cases: [(&str, Value); 14] = [
        ("+OK\r\n", Value::simple("OK")),
        ("+\r\n", Value::simple("")),
        ("-ERR no\r\n", Value::error("ERR no")),
        (":-12\r\n", Value::Integer(-12)),
        (":+12\r\n", Value::Integer(12)),
        (":-9223372036854775808\r\n", Value::Integer(i64::MIN)),
        ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
        ("$0\r\n\r\n", bulk("")),
        ("$-1\r\n", Value::Null),
        ("*-1\r\n", Value::NullArray),
        ("*0\r\n", Value::Array(vec![])),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", Value::Array(vec![bulk("GET"), bulk("k")])),
        ("*3\r\n*1\r\n*0\r\n:7\r\n*-1\r\n", {
            let inner = Value::Array(vec![Value::Array(vec![])]);
            Value::Array(vec![inner, Value::Integer(7), Value::NullArray])
        }),
        ("*1\r\n*2\r\n+a\r\n$-1\r\n", {
            Value::Array(vec![Value::Array(vec![Value::simple("a"), Value::Null])])
        }),
    ];
    for (input, value) in cases {
        assert_eq!(decoded(&RespCodec::new(), input.as_bytes()), (vec![value], None), "{input:?}");
    }
}

#[test]
fn what_is_no_resp_or_too_much_of_it_is_refused() {
    let codec = RespCodec::new().max_frame(40).max_items(6).max_depth(2);
    let cases: &[(&str, &str)] = &[
        ("?", "a value cannot begin with byte 0x3f"),
        ("\r\n", "a value cannot begin with byte 0x0d"),
        ("*1\r\n%", "a value cannot begin with byte 0x25"),
        ("+a\n", "a line or a string that does not end in CR LF"),
        ("+a\rb", "a line or a string that does not end in CR LF"),
        ("$1\r\nab", "a line or a string that does not end in CR LF"),
        ("$1\r\na\rb", "a line or a string that does not end in CR LF"),
        (":\r\n", "a number that is none"),
        (":-\r\n", "a number that is none"),
        (":1 \r\n", "a number that is none"),
        (":9223372036854775808\r\n", "a number that is none"),
        (":000000000000000000001\r\n", "a number that is none"),
        ("$1", "the connection failed"),
        ("$\r\n", "a number that is none"),
        ("$-2\r\n", "a length of -2"),
        ("*-9\r\n", "a length of -9"),
        // Each is refused as soon as its length is known.
        ("$34\r\n", "a value of more than 40 bytes"),
        ("$999999999\r\n", "a value of more than 40 bytes"),
        ("$9223372036854775807\r\n", "a value of more than 40 bytes"),
        ("*6\r\n", "a value made of more than 6 values"),
        ("*1000000000\r\n", "a value made of more than 6 values"),
        ("*9223372036854775807\r\n", "a value made of more than 6 values"),
        ("*3\r\n*2\r\n+a\r\n+b\r\n*1\r\n", "a value made of more than 6 values"),
        ("*1\r\n*1\r\n*0\r\n", "arrays that are more than 2 deep"),
        ("*2\r\n$15\r\n123456789012345\r\n$10\r\n", "a value of more than 40 bytes"),
        ("+12345678901234567890123456789012345678\r\n", "a value of more than 40 bytes"),
        ("+12345678901234567890123456789012345678", "a value of more than 40 bytes"),
    ];
    for (input, error) in cases {
        assert_eq!(decoded(&codec, input.as_bytes()), (vec![], Some((*error).to_owned())), "{input:?}");
    }
}

#[test]
fn a_value_may_be_as_large_as_the_limits_and_no_larger() {
    let codec = RespCodec::new().max_frame(40).max_items(6).max_depth(2);
    for input in [
        "+1234567890123456789012345678901234567\r\n",
        "$33\r\n123456789012345678901234567890123\r\n",
        "*2\r\n$15\r\n123456789012345\r\n$8\r\n12345678\r\n",
        "*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n",
        "*1\r\n*1\r\n:9223372036854775807\r\n",
        ":-9223372036854775808\r\n",
    ] {
        let (values, error) = decoded(&codec, input.as_bytes());
        assert_eq!((values.len(), error), (1, None), "{input:?}");
    }
    let errors = ["$34\r\n", "*6\r\n", "*1\r\n*1\r\n*0\r\n"].map(|input| {
        let error = codec.clone().decode(&mut BytesMut::from(input)).unwrap_err();
        assert!(error.is_limit());
        error
    });
    assert!(matches!(
        errors,
        [
            RespError::TooLong { limit: 40 },
            RespError::TooManyItems { limit: 6 },
            RespError::TooDeep { limit: 2 }
        ]
    ));
}

#[test]
fn what_was_encoded_is_decoded_to_the_same() {
    let values = vec![
        Value::simple("OK"),
        Value::error("ERR of\r\ntwo lines"),
        Value::Integer(0),
        Value::Integer(i64::MIN),
        Value::Integer(i64::MAX),
        bulk("a\r\nb"),
        Value::Null,
        Value::NullArray,
        Value::Array(vec![]),
        Value::Array(vec![Value::Array(vec![Value::Integer(-1), bulk("")]), Value::Null]),
    ];
    let (mut codec, mut wire) = (RespCodec::new(), BytesMut::new());
    for value in &values {
        codec.encode(value, &mut wire).unwrap();
    }
    assert_eq!(decoded(&codec, &wire), (values, None));
}

#[test]
fn what_cannot_be_encoded_leaves_nothing_behind() {
    let (mut codec, mut wire) = (RespCodec::new(), BytesMut::from("before"));
    let text = |text: &'static str| Value::Array(vec![Value::Integer(1), Value::simple(text)]);
    for value in [text("a\rb"), text("a\nb"), Value::Error(Bytes::from_static(b"\r\n"))] {
        assert!(matches!(codec.encode(value, &mut wire), Err(RespError::LineEnd)));
        assert_eq!(wire, "before");
    }
    let mut deep = Value::Null;
    for _ in 0..255 {
        deep = Value::Array(vec![deep]);
    }
    codec.encode(&deep, &mut wire).unwrap();
    let (values, error) = decode_by(&mut RespCodec::new().max_depth(255), &wire[6..], 7);
    assert_eq!((values.as_slice(), error), ([deep.clone()].as_slice(), None));
    wire.truncate(6);
    let deeper = Value::Array(vec![deep]);
    assert!(matches!(codec.encode(&deeper, &mut wire), Err(RespError::TooDeep { limit: 255 })));
    assert_eq!(wire, "before");
}

#[test]
fn an_error_stays_and_another_buffer_begins_anew() {
    let mut codec = RespCodec::new();
    let mut buffer = BytesMut::from("*2\r\n:1\r\n?");
    for _ in 0..2 {
        assert!(matches!(codec.decode(&mut buffer), Err(RespError::Kind(b'?'))));
    }
    assert_eq!(codec.decode(&mut BytesMut::from("*2\r\n:1\r\n+half a li")).unwrap(), None);
    assert_eq!(codec.decode(&mut BytesMut::from("+a\r\n")).unwrap(), Some(Value::simple("a")));
    assert_eq!(codec.decode(&mut BytesMut::from("+half a li")).unwrap(), None);
    assert_eq!(codec.decode(&mut BytesMut::from("+a\r\n")).unwrap(), Some(Value::simple("a")));
}
