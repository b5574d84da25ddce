//! The live view: looks once an interval, reads keys in between, and waits for the process to come back when it has gone.

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::app::App;
use super::client::{Client, Trouble};
use super::view;
use crate::cli::Top;

pub fn run(options: &Top) -> Result<(), Trouble> {
    // Before the screen is taken: a path that is wrong from the start is told as plainly as possible.
    let client = Client::connect(&options.socket)?;
    let mut terminal = ratatui::try_init().map_err(Trouble::Io)?;
    let done = watch(&mut terminal, client, options);
    ratatui::restore();
    done
}

fn watch(terminal: &mut DefaultTerminal, client: Client, options: &Top) -> Result<(), Trouble> {
    let interval = Duration::from_secs_f64(options.interval);
    let mut app = App::new(options.sort);
    let mut client = Some(client);
    loop {
        let looked = Instant::now();
        look(&mut app, &mut client, options);
        // At least one glance at the keys, however long the look took.
        loop {
            terminal.draw(|frame| view::draw(frame, &app)).map_err(Trouble::Io)?;
            let left = interval.saturating_sub(looked.elapsed());
            if !event::poll(left).map_err(Trouble::Io)? {
                break;
            }
            if let Event::Key(key) = event::read().map_err(Trouble::Io)?
                && key.kind != KeyEventKind::Release
                && app.press(key)
            {
                return Ok(());
            }
        }
    }
}

/// A look, over a new connection if the last one has ended.
fn look(app: &mut App, client: &mut Option<Client>, options: &Top) {
    let reconnects = client.is_none();
    let sample = match client.take() {
        Some(client) => Ok(client),
        None => Client::connect(&options.socket),
    }
    .and_then(|mut connected| {
        let sample = connected.sample()?;
        *client = Some(connected);
        Ok(sample)
    });
    match sample {
        Ok(sample) => app.hear(sample),
        // It was told that the process has ended; that nobody listens any more is no news.
        Err(Trouble::Nobody(_)) if reconnects && app.trouble.is_some() => {}
        Err(trouble) => app.trouble = Some(format!("{trouble}; waiting for it to come back")),
    }
}
