//! `corelet top`: a live view of a process that has opened its observer's socket.

mod app;
mod client;
mod model;
mod terminal;
mod view;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::Top;
use app::App;
use client::{Client, Trouble};
use model::Model;
pub use model::Sort;

/// Actors that are printed where nobody says how many.
const ACTORS_ON_A_SCREEN: usize = 40;

pub fn run(options: &Top) -> ExitCode {
    let done = if options.once { once(options) } else { terminal::run(options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("corelet top: {}: {trouble}", options.socket.display());
            ExitCode::FAILURE
        }
    }
}

/// Looks twice, an interval apart, and prints what has happened in between.
fn once(options: &Top) -> Result<(), Trouble> {
    let mut client = Client::connect(&options.socket)?;
    let first = client.sample()?;
    std::thread::sleep(Duration::from_secs_f64(options.interval));
    let second = client.sample()?;
    let mut model = Model::new(&second, Some(&first));
    let text = if options.json {
        model.sort(options.sort, false);
        model.actors.truncate(options.actors.unwrap_or(usize::MAX));
        serde_json::to_string(&model).map_err(|error| Trouble::Io(error.into()))? + "\n"
    } else {
        let mut app = App::new(options.sort);
        app.show(model);
        view::plain(&app, options.actors.unwrap_or(ACTORS_ON_A_SCREEN))
    };
    // Whoever reads may have read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
