//! Feeds a codec with bytes in pieces and sees what comes out. The fuzz targets do the same by this very file.
#![allow(dead_code, clippy::unwrap_used)]

use std::fmt::Display;

use bytes::{Bytes, BytesMut};
use corelet::service::codec::{ByteLinesCodec, LengthDelimitedCodec, LinesCodec, RespCodec, Value};
use tokio_util::codec::{Decoder, Encoder};

/// The ready codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    LengthDelimited,
    Lines,
    ByteLines,
    Resp,
}

pub const KINDS: [Kind; 4] = [Kind::LengthDelimited, Kind::Lines, Kind::ByteLines, Kind::Resp];

/// What the codecs are told to accept.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub frame: usize,
    pub items: usize,
    pub depth: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Bytes(Bytes),
    Text(String),
    Value(Value),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Frame(Frame),
    Error(String),
}

/// A buffer holds the longest frame and what was received last, behind as much again that was taken out, and it grows by
/// doubling.
pub fn most_buffered(accepted: Accepted, longest_piece: usize) -> usize {
    4 * (accepted.frame + longest_piece) + 64
}

/// All that may be alive at once while frames are dropped as they come: the buffer, an older one while it grows, one frame's
/// values and the codec's notes.
pub fn most_held(accepted: Accepted, longest_piece: usize) -> usize {
    2 * most_buffered(accepted, longest_piece) + 128 * accepted.items + 512
}

/// Everything that comes out of `input`, cut into pieces of these lengths, over and over.
pub fn outcome(kind: Kind, accepted: Accepted, input: &[u8], cuts: &[usize]) -> Vec<Event> {
    let mut events = Vec::new();
    feed(kind, accepted, input, cuts, |event| {
        if let Event::Frame(frame) = &event {
            check(frame, accepted);
        }
        events.push(event);
    });
    events
}

/// Feeds a codec and shows each event as it comes.
pub fn feed(kind: Kind, accepted: Accepted, input: &[u8], cuts: &[usize], mut see: impl FnMut(Event)) {
    let Accepted { frame, items, depth } = accepted;
    let longest_piece = cuts.iter().copied().max().unwrap_or(usize::MAX).min(input.len());
    let feeding = Feeding { input, cuts, most: most_buffered(accepted, longest_piece), goes_on: false };
    match kind {
        Kind::LengthDelimited => {
            let codec = LengthDelimitedCodec::builder().max_frame_length(frame).new_codec();
            feeding.run(codec, |frame| Frame::Bytes(frame.freeze()), &mut see);
        }
        // It skips a bad line and goes on, so all of the input matters.
        Kind::Lines => {
            let codec = LinesCodec::new_with_max_length(frame);
            Feeding { goes_on: true, ..feeding }.run(codec, Frame::Text, &mut see);
        }
        Kind::ByteLines => {
            feeding.run(ByteLinesCodec::new().max_line(frame), Frame::Bytes, &mut see);
        }
        Kind::Resp => {
            let codec = RespCodec::new().max_frame(frame).max_items(items).max_depth(depth);
            feeding.run(codec, Frame::Value, &mut see);
        }
    }
}

struct Feeding<'a> {
    input: &'a [u8],
    cuts: &'a [usize],
    most: usize,
    /// Errors do not end it.
    goes_on: bool,
}

impl Feeding<'_> {
    fn run<D>(&self, mut codec: D, frame: impl Fn(D::Item) -> Frame, see: &mut dyn FnMut(Event))
    where
        D: Decoder<Error: Display>,
    {
        let (mut buffer, mut rest) = (BytesMut::new(), self.input);
        let mut cuts = self.cuts.iter().copied().cycle();
        while !rest.is_empty() {
            let cut = cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len());
            buffer.extend_from_slice(&rest[..cut]);
            rest = &rest[cut..];
            loop {
                let decoded = codec.decode(&mut buffer);
                assert!(buffer.capacity() <= self.most, "a buffer of {} bytes", buffer.capacity());
                match decoded {
                    Ok(Some(item)) => see(Event::Frame(frame(item))),
                    Ok(None) => break,
                    Err(error) => {
                        see(Event::Error(error.to_string()));
                        if !self.goes_on {
                            return;
                        }
                    }
                }
            }
        }
        loop {
            match codec.decode_eof(&mut buffer) {
                Ok(Some(item)) => see(Event::Frame(frame(item))),
                Ok(None) => return,
                Err(error) => {
                    see(Event::Error(error.to_string()));
                    if !self.goes_on {
                        return;
                    }
                }
            }
        }
    }
}

/// No frame exceeds what is accepted.
fn check(frame: &Frame, accepted: Accepted) {
    let len = match frame {
        Frame::Bytes(bytes) => bytes.len(),
        Frame::Text(text) => text.len(),
        Frame::Value(value) => {
            let (items, depth) = measure(value);
            assert!(items <= accepted.items, "{items} values");
            assert!(depth <= usize::from(accepted.depth), "arrays {depth} deep");
            // Never longer than it came, as there are several ways to write a number.
            encoded(value).len()
        }
    };
    assert!(len <= accepted.frame, "a frame of {len} bytes");
}

pub fn encoded(value: &Value) -> BytesMut {
    let mut wire = BytesMut::new();
    RespCodec::new().encode(value, &mut wire).unwrap();
    wire
}

/// How many values it is made of, and how deep its arrays are.
fn measure(value: &Value) -> (usize, usize) {
    let (mut items, mut deepest) = (1, 0);
    for item in value.items() {
        let (inner, depth) = measure(item);
        items += inner;
        deepest = deepest.max(depth);
    }
    (items, deepest + usize::from(matches!(value, Value::Array(_))))
}

/// What the frames are encoded to is decoded to the same frames, and nothing behind.
pub fn check_round_trip(kind: Kind, accepted: Accepted, events: &[Event]) {
    let mut wire = BytesMut::new();
    let mut length_delimited = LengthDelimitedCodec::builder().max_frame_length(accepted.frame).new_codec();
    let mut frames = Vec::new();
    for event in events {
        let Event::Frame(frame) = event else { continue };
        match frame {
            // A CR in front of the line end would be a part of the end.
            Frame::Text(line) if line.ends_with('\r') => continue,
            Frame::Bytes(line) if kind == Kind::ByteLines && line.ends_with(b"\r") => {
                ByteLinesCodec::new().encode(line, &mut wire).unwrap_err();
                continue;
            }
            Frame::Bytes(bytes) if kind == Kind::LengthDelimited => {
                length_delimited.encode(bytes.clone(), &mut wire).unwrap();
            }
            Frame::Bytes(line) => ByteLinesCodec::new().encode(line, &mut wire).unwrap(),
            Frame::Text(line) => LinesCodec::new().encode(line, &mut wire).unwrap(),
            Frame::Value(value) => RespCodec::new().encode(value, &mut wire).unwrap(),
        }
        frames.push(event.clone());
    }
    assert_eq!(outcome(kind, accepted, &wire, &[]), frames);
}
