//! The live view: a thread looks once an interval, so that keys are heard while the process is slow to answer.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::app::App;
use super::client::{Client, Sample, Trouble};
use super::view;
use crate::cli::Top;

/// How long keys are waited for before the next glance at what was heard of the process.
const GLANCE: Duration = Duration::from_millis(50);

pub fn run(options: &Top) -> Result<(), Trouble> {
    // Before the screen is taken: a path that is wrong from the start is told as plainly as possible.
    let client = Client::connect(&options.socket)?;
    let (news, heard) = channel();
    let (path, interval) = (options.socket.clone(), Duration::from_secs_f64(options.interval));
    std::thread::spawn(move || look_on(client, &path, interval, &news));
    let mut terminal = ratatui::try_init().map_err(Trouble::Io)?;
    let done = watch(&mut terminal, &heard, App::new(options.sort));
    ratatui::restore();
    done
}

fn watch(
    terminal: &mut DefaultTerminal,
    heard: &Receiver<Result<Sample, Trouble>>,
    mut app: App,
) -> Result<(), Trouble> {
    loop {
        for outcome in heard.try_iter() {
            app.hear(outcome);
        }
        // Writes what has changed only.
        terminal.draw(|frame| view::draw(frame, &app)).map_err(Trouble::Io)?;
        if event::poll(GLANCE).map_err(Trouble::Io)?
            && let Event::Key(key) = event::read().map_err(Trouble::Io)?
            && key.kind != KeyEventKind::Release
            && app.press(key)
        {
            return Ok(());
        }
    }
}

/// Looks for as long as somebody wants to hear of it, over a new connection when the last one has ended.
fn look_on(client: Client, path: &Path, interval: Duration, news: &Sender<Result<Sample, Trouble>>) {
    let mut connected = Some(client);
    loop {
        let looked = Instant::now();
        let outcome = match connected.take() {
            Some(client) => Ok(client),
            None => Client::connect(path),
        }
        .and_then(|mut client| {
            let sample = client.sample()?;
            connected = Some(client);
            Ok(sample)
        });
        if news.send(outcome).is_err() {
            return;
        }
        std::thread::sleep(interval.saturating_sub(looked.elapsed()));
    }
}
