//! What the user has chosen to see, and what there is to be seen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::client::{Sample, Trouble};
use super::model::{Model, Sort};

/// Rows that a page is scrolled by.
const PAGE: usize = 10;

pub struct App {
    pub sort: Sort,
    pub reversed: bool,
    /// Actors that are scrolled past.
    pub skipped: usize,
    pub model: Option<Model>,
    /// What keeps it from being up to date.
    pub trouble: Option<String>,
    latest: Option<Sample>,
}

impl App {
    pub fn new(sort: Sort) -> App {
        App { sort, reversed: false, skipped: 0, model: None, trouble: None, latest: None }
    }

    /// Takes in what has been heard of the process.
    pub fn hear(&mut self, outcome: Result<Sample, Trouble>) {
        match outcome {
            Ok(sample) => {
                self.show(Model::new(&sample, self.latest.as_ref()));
                self.latest = Some(sample);
            }
            // It was told that the process has ended; that nobody listens any more is no news.
            Err(Trouble::Nobody(_)) if self.trouble.is_some() => {}
            Err(trouble) => self.trouble = Some(format!("{trouble}; waiting for it to come back")),
        }
    }

    pub fn show(&mut self, model: Model) {
        self.trouble = None;
        self.model = Some(model);
        self.arrange();
    }

    /// Does as the key says; true when that is to quit.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Up | KeyCode::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.skipped += 1,
            KeyCode::PageUp => self.skipped = self.skipped.saturating_sub(PAGE),
            KeyCode::PageDown => self.skipped += PAGE,
            KeyCode::Home => self.skipped = 0,
            _ => {}
        }
        self.arrange();
        false
    }

    fn arrange(&mut self) {
        let Some(model) = &mut self.model else { return };
        model.sort(self.sort, self.reversed);
        self.skipped = self.skipped.min(model.actors.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::view::tests::sample;

    fn press(app: &mut App, code: KeyCode) -> bool {
        app.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_sort_scroll_and_quit() {
        let mut app = App::new(Sort::Polls);
        app.hear(Ok(sample(1)));
        assert!(!press(&mut app, KeyCode::Char('s')) && !press(&mut app, KeyCode::Char('r')));
        assert_eq!((app.sort, app.reversed), (Sort::Messages, true));
        press(&mut app, KeyCode::PageDown);
        assert_eq!(app.skipped, 2, "one of three stays in sight");
        press(&mut app, KeyCode::Up);
        press(&mut app, KeyCode::Home);
        assert_eq!(app.skipped, 0);
        assert!(press(&mut app, KeyCode::Char('q')) && press(&mut app, KeyCode::Esc));
        assert!(!press(&mut app, KeyCode::Char('c')));
        assert!(app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn trouble_leaves_what_was_seen_last_and_goes_with_the_next_look() {
        let mut app = App::new(Sort::Polls);
        app.hear(Ok(sample(1)));
        app.hear(Err(Trouble::Ended { process: 4242, program: "gateway".into() }));
        app.hear(Err(Trouble::Nobody(std::io::ErrorKind::NotFound.into())));
        assert!(app.trouble.as_deref().unwrap().starts_with("gateway (process 4242) has ended"));
        assert!(app.model.is_some());
        app.hear(Ok(sample(3)));
        assert!(app.trouble.is_none() && app.model.unwrap().cores[0].busy.is_some());
    }
}
