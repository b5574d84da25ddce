//! What is said before the first frame: whole or in drops, in time or not, accepted or refused.

use std::sync::mpsc;
use std::time::Duration;

use corelet::service::server::{Opening, PreambleError, WhenFull};
use corelet::service::{BoxError, Server};
use tokio_util::codec::LinesCodec;

use crate::fixture::*;
use crate::support::{PATIENCE, on_cores, poll_until, soon};

/// `I am NAME`, answered by `welcome`; or `no`.
async fn introduce(opening: &mut Opening) -> Result<String, BoxError> {
    let hello = opening.decode(&mut LinesCodec::new_with_max_length(4096)).await?;
    assert_ne!(hello, "panic", "on purpose");
    let Some(name) = hello.strip_prefix("I am ") else {
        opening.reply("no\n").await?;
        return Err("nobody we know".into());
    };
    opening.reply("welcome\n").await?;
    Ok(name.to_owned())
}

fn with_preamble() -> (Server<Lines>, mpsc::Receiver<Result<String, String>>) {
    let (heard, hears) = mpsc::channel();
    let server = server().preamble(introduce).preamble_limit(64).preamble_timeout(PATIENCE);
    let server = server.on_preamble(move |_, outcome| {
        let outcome = outcome.cloned().map_err(|error| match error {
            PreambleError::Refused(why) => format!("refused: {why}"),
            other => other.to_string(),
        });
        heard.send(outcome).unwrap();
    });
    (server, hears)
}

#[test]
fn a_preamble_gives_the_session_and_leaves_the_rest_to_the_frames() {
    on_cores(2, async move |runtime, _| {
        let (server, heard) = with_preamble();
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut client = connect(&server).await;
        say(&mut client, "I am Ada\nwhoami\necho a").await;
        hear(&mut client, "welcome\nAda\n").await;
        talk(&mut client, "fter", "echo after").await;
        assert_eq!(heard.try_recv().unwrap().as_deref(), Ok("Ada"));

        let mut dripping = connect(&server).await;
        for character in "I am Bob\nwhoami\n".chars() {
            say(&mut dripping, character.encode_utf8(&mut [0; 4])).await;
            soon(dripping.flush()).await.unwrap();
        }
        hear(&mut dripping, "welcome\nBob\n").await;
    });
}

#[test]
fn who_is_refused_hears_it_and_costs_nobody_else() {
    on_cores(2, async move |runtime, _| {
        let (server, heard) = with_preamble();
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut refused = connect(&server).await;
        say(&mut refused, "guess\n").await;
        assert_eq!(hear_all(&mut refused).await, "no\n");
        assert_eq!(heard.try_recv().unwrap().unwrap_err(), "refused: nobody we know");

        let mut long = connect(&server).await;
        say(&mut long, &"x".repeat(200)).await;
        assert_eq!(hear_all(&mut long).await, "");
        assert_eq!(heard.try_recv().unwrap().unwrap_err(), "a preamble of more than 64 bytes");

        let mut panics = connect(&server).await;
        say(&mut panics, "panic\n").await;
        assert_eq!(hear_all(&mut panics).await, "");

        let mut gone = connect(&server).await;
        say(&mut gone, "I a").await;
        soon(gone.shutdown(std::net::Shutdown::Write)).await.unwrap();
        assert_eq!(hear_all(&mut gone).await, "");
        assert!(heard.try_recv().unwrap().unwrap_err().contains("before the end"));

        poll_until(async || figure(&server, |core| core.preambles_failed).await == 4).await;
        assert_eq!(figure(&server, |core| core.open).await, 0);
        let mut client = connect(&server).await;
        say(&mut client, "I am Ada\n").await;
        hear(&mut client, "welcome\n").await;
        assert_eq!(figure(&server, |core| core.counts.opened).await, 1, "the others never had a frame");
    });
}

#[test]
fn who_says_nothing_is_cut_off() {
    on_cores(2, async move |runtime, _| {
        let (server, heard) = with_preamble();
        let server = server.preamble_timeout(Duration::from_millis(20));
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut silent = connect(&server).await;
        assert_eq!(hear_all(&mut silent).await, "");
        assert!(heard.try_recv().unwrap().unwrap_err().contains("within 20ms"));
        let mut dripping = connect(&server).await;
        // A byte now and then does not help.
        while dripping.write_all("I").await.0.is_ok() && dripping.flush().await.is_ok() {
            corelet::runtime::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(figure(&server, |core| core.open).await, 0);
    });
}

#[test]
fn a_preamble_that_hangs_holds_up_neither_the_drain_nor_its_place() {
    on_cores(2, async move |runtime, _| {
        let server = server()
            .preamble(async |_: &mut Opening| std::future::pending::<Result<String, BoxError>>().await);
        let server = server.preamble_timeout(100 * PATIENCE).max_connections(1).when_full(WhenFull::Wait);
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut first = connect(&server).await;
        let mut second = connect(&server).await;
        poll_until(async || figure(&server, |core| core.in_preamble).await == 1).await;
        let listed = server.connections().await;
        assert!(listed.len() == 1 && listed[0].in_preamble);
        assert!(server.close_connection(listed[0].id).await);
        poll_until(async || figure(&server, |core| core.accepted).await == 2).await;
        assert_eq!(soon(server.drain(100 * PATIENCE)).await.unwrap().connections, 1);
        assert_eq!(hear_all(&mut first).await + &hear_all(&mut second).await, "");
    });
}
