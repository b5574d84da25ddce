//! A handler that borrows what does not live as long as the application.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Layer;
use lines::Lines;

fn app(greeting: &str) -> App<Lines, impl Layer<Lines>> {
    App::new(Lines).route(1, async move || greeting.to_owned())
}

fn main() {
    let _ = app("hello");
}
