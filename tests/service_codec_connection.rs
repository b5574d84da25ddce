//! The ready codecs in a connection: their bounds and a connection's fit together.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_support;
mod support;

use std::marker::PhantomData;

use bytes::{BufMut, Bytes, BytesMut};
use corelet::service::codec::{self, ByteLinesCodec, MAX_FRAME, MAX_LINE, RespCodec, Value};
use corelet::service::push::PushSettings;
use corelet::service::{App, BoxError, End, Limits, Protocol, serve};
use service_support::Wire;
use support::{on_cores, soon};
use tokio_util::codec::{Decoder, Encoder};

/// Takes what the codec `C` decodes, and answers nothing, which would be an `R`.
struct Silent<C, R> {
    codec: fn() -> C,
    response: PhantomData<fn(R)>,
}

impl<C, R> Protocol for Silent<C, R>
where
    C: Decoder<Item: 'static, Error: Into<BoxError>> + Encoder<R, Error: Into<BoxError>> + 'static,
    R: 'static,
{
    type Codec = C;
    type Request = C::Item;
    type Response = R;
    type Id = ();
    type Session = ();

    fn codec(&self) -> C {
        (self.codec)()
    }

    fn session(&self) {}

    fn id(&self, _: &C::Item) -> Option<()> {
        Some(())
    }
}

/// How many frames a connection with the default limits takes of `bytes`, and its end. The first `cut` come by themselves.
async fn taken<C, R>(codec: fn() -> C, bytes: &[u8], cut: usize) -> (u64, End)
where
    C: Decoder<Item: 'static, Error: Into<BoxError>> + Encoder<R, Error: Into<BoxError>> + 'static,
    R: 'static,
{
    let app =
        App::new(Silent::<C, R> { codec, response: PhantomData }).route((), async || {}).prepare().unwrap();
    let wire = Wire::default();
    wire.feed(&bytes[..cut]);
    let mut serving =
        std::pin::pin!(serve(wire.transport(), &app, &Limits::default(), &PushSettings::default()));
    // An end that comes early is looked at below.
    let early = support::poll_once(&mut serving).await;
    wire.feed(&bytes[cut..]);
    wire.end();
    let end = match early {
        std::task::Poll::Ready(end) => end,
        std::task::Poll::Pending => soon(serving).await,
    };
    (app.counts().requests, end)
}

/// A connection takes `longest` however it is cut, and does not take `beyond`.
async fn fits<C, R>(codec: fn() -> C, longest: &[u8], beyond: &[u8])
where
    C: Decoder<Item: 'static, Error: Into<BoxError>> + Encoder<R, Error: Into<BoxError>> + 'static,
    R: 'static,
{
    assert!(codec().decode(&mut BytesMut::from(longest)).is_ok_and(|frame| frame.is_some()));
    assert!(codec().decode(&mut BytesMut::from(beyond)).is_err(), "the codec's bound is the same");
    for cut in [0, 1, 4, 5, MAX_FRAME / 2, longest.len() - 1, longest.len()] {
        let (frames, end) = taken::<C, R>(codec, longest, cut).await;
        assert!(frames == 1 && matches!(end, End::Closed), "cut at {cut}: {frames} frames, {end:?}");
        let (frames, end) = taken::<C, R>(codec, beyond, cut).await;
        assert!(
            frames == 0 && matches!(end, End::Decode(_) | End::FrameTooLong { .. }),
            "too long, cut at {cut}: {frames} frames, {end:?}"
        );
    }
}

fn length_delimited(body: usize) -> BytesMut {
    let mut wire = BytesMut::new();
    wire.put_u32(body as u32);
    wire.put_bytes(7, body);
    wire
}

fn line(length: usize, end: &str) -> BytesMut {
    let mut wire = BytesMut::new();
    wire.put_bytes(b'a', length);
    wire.put_slice(end.as_bytes());
    wire
}

fn bulk(length: usize) -> BytesMut {
    let mut wire = BytesMut::new();
    RespCodec::new().encode(&Value::bulk(vec![7; length]), &mut wire).unwrap();
    wire
}

#[test]
fn the_longest_frame_of_each_ready_codec_fits_a_connections_limits() {
    on_cores(1, async |_, _| {
        assert_eq!(MAX_FRAME, Limits::default().max_frame);
        let (longest, beyond) = (length_delimited(MAX_FRAME - 4), length_delimited(MAX_FRAME - 3));
        fits::<_, Bytes>(codec::length_delimited, &longest, &beyond).await;
        for end in ["\n", "\r\n"] {
            let (longest, beyond) = (line(MAX_LINE, end), line(MAX_LINE + 1, end));
            fits::<_, Bytes>(ByteLinesCodec::new, &longest, &beyond).await;
        }
        fits::<_, String>(codec::lines, &line(MAX_LINE, "\n"), &line(MAX_LINE + 1, "\n")).await;
        fits::<_, String>(codec::lines, &line(MAX_LINE - 1, "\r\n"), &line(MAX_LINE, "\r\n")).await;
        fits::<_, Value>(RespCodec::new, &bulk(MAX_FRAME - 10), &bulk(MAX_FRAME - 9)).await;
    });
}
