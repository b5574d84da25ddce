//! The screen: cores, pools, actors.

use corelet::observer::protocol::State;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use ratatui::{Frame, Terminal};

use super::app::App;
use super::model::{ActorRow, CoreRow, Model};

/// How wide a screen is that is printed and not shown.
const PLAIN_WIDTH: u16 = 118;

/// Draws what there is, whatever the size of the screen.
pub fn draw(frame: &mut Frame, app: &App) {
    let area = frame.area();
    let Some(model) = &app.model else {
        let text = app.trouble.as_deref().unwrap_or("looking ...");
        return frame.render_widget(Line::raw(text), area);
    };
    let [head, notice, cores, pools, actors] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(model.cores.len() as u16 + 2),
        Constraint::Length(pool_lines(model)),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(Line::styled(title(model, app), Style::new().add_modifier(Modifier::BOLD)), head);
    if let Some(notice_text) = notice_of(model, app) {
        frame.render_widget(Line::styled(notice_text, Style::new().fg(Color::Red)), notice);
    }
    draw_cores(frame, model, cores);
    draw_pools(frame, model, pools);
    draw_actors(frame, model, app, actors);
}

/// The screen as text, as high as it has to be for at most so many actors.
pub fn plain(app: &App, actors: usize) -> String {
    let rows = app.model.as_ref().map_or(0, |model| {
        // The title, the notice, and a header for cores and actors with an empty line between them.
        5 + model.cores.len() + usize::from(pool_lines(model)) + model.actors.len().min(actors)
    });
    // No more cells than a screen can count.
    let highest = u16::MAX / PLAIN_WIDTH;
    screen(app, PLAIN_WIDTH, u16::try_from(rows).unwrap_or(highest).min(highest))
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw(frame, app));
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(width.into()).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn title(model: &Model, app: &App) -> String {
    format!(
        "{} (process {})   {} cores   {} actors by {}{}   s sort  r reverse  q quit",
        model.program,
        model.process,
        model.cores.len() + model.missing.len(),
        model.actors_in_all,
        app.sort.name(),
        if app.reversed { ", reversed" } else { "" },
    )
}

fn notice_of(model: &Model, app: &App) -> Option<String> {
    if let Some(trouble) = &app.trouble {
        return Some(trouble.clone());
    }
    let missing: Vec<String> = model.missing.iter().map(u16::to_string).collect();
    (!missing.is_empty())
        .then(|| format!("no answer from core {}: a task keeps it busy, or it has ended", missing.join(", ")))
}

/// The names of columns, of which the first so many hold texts.
fn header(texts: usize, names: &[&'static str]) -> Row<'static> {
    let names = names.iter().enumerate().map(|(place, name)| {
        let name = Line::from(*name);
        if place < texts { name } else { name.right_aligned() }
    });
    Row::new(names).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// Right-aligned in its column.
fn number(text: String) -> Line<'static> {
    Line::from(text).right_aligned()
}

fn rate(rate: Option<f64>) -> Line<'static> {
    number(rate.map_or("-".into(), short))
}

/// A number in at most five characters.
fn short(number: f64) -> String {
    match number {
        below if below < 10.0 && below.fract() > 0.05 => format!("{below:.1}"),
        below if below < 10e3 => format!("{below:.0}"),
        below if below < 1e6 => format!("{:.0}k", below / 1e3),
        below if below < 10e6 => format!("{:.1}M", below / 1e6),
        below if below < 1e9 => format!("{:.0}M", below / 1e6),
        above => format!("{:.1}G", above / 1e9),
    }
}

fn count(count: u64) -> Line<'static> {
    number(short(count as f64))
}

fn draw_cores(frame: &mut Frame, model: &Model, area: Rect) {
    let row = |row: &CoreRow| {
        let core = &row.core;
        let busy = row.busy.map_or("-".into(), |busy| format!("{:.0} %", busy * 100.0));
        Row::new([
            Line::from(core.core.to_string()),
            number(busy),
            count(core.ready as u64),
            count(core.live as u64),
            rate(row.polls_per_s),
            rate(row.parks_per_s),
            count(core.in_flight as u64),
            rate(row.enters_per_s),
            count(core.timers as u64),
            count(core.overruns),
            count(core.undelivered),
        ])
    };
    let names = [
        "CORE", "BUSY", "READY", "ACTORS", "POLLS/S", "PARKS/S", "RING", "ENTERS/S", "TIMERS", "OVERRUNS",
        "LOST",
    ];
    let widths = [7, 6, 6, 7, 8, 8, 6, 9, 7, 9, 6].map(Constraint::Length);
    frame.render_widget(Table::new(model.cores.iter().map(row), widths).header(header(1, &names)), area);
}

fn pool_lines(model: &Model) -> u16 {
    let shards: usize = model.pools.iter().map(|pool| pool.shards.len().max(1)).sum();
    // As for the cores: a header, and an empty line behind it all.
    if shards == 0 { 0 } else { shards as u16 + 2 }
}

fn draw_pools(frame: &mut Frame, model: &Model, area: Rect) {
    if model.pools.is_empty() {
        return;
    }
    let mut rows = Vec::new();
    for pool in &model.pools {
        // Long paths of types: the last part of each says what it is.
        let connector = pool.connector.rsplit("::").next().unwrap_or_default();
        let name = format!("{}{}", pool.pool, if pool.closed { " closed" } else { "" });
        let mut first = [name, connector.to_owned()];
        for shard in &pool.shards {
            let [name, connector] = std::mem::take(&mut first);
            let (row, shard) = (shard, &shard.shard);
            rows.push(Row::new([
                Line::from(name),
                Line::from(connector),
                number(shard.core.to_string()),
                count(shard.idle as u64),
                count(shard.leased as u64),
                count(shard.waiting as u64),
                count(shard.opening as u64),
                rate(row.acquires_per_s),
                rate(row.waits_per_s),
                count(shard.opens),
                count(shard.closes),
                count(shard.refused),
            ]));
        }
        if pool.shards.is_empty() {
            rows.push(Row::new(first));
        }
    }
    let names = [
        "POOL",
        "CONNECTOR",
        "CORE",
        "IDLE",
        "LEASED",
        "WAITING",
        "OPENING",
        "ACQUIRES/S",
        "WAITS/S",
        "OPENS",
        "CLOSES",
        "REFUSED",
    ];
    let widths = [9, 16, 5, 6, 6, 7, 7, 10, 8, 6, 7, 7].map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(header(2, &names)), area);
}

fn draw_actors(frame: &mut Frame, model: &Model, app: &App, area: Rect) {
    let row = |row: &ActorRow| {
        let actor = &row.actor;
        let state = match actor.state {
            State::Running => "running",
            State::Queued => "ready",
            State::Parked => "waits",
        };
        Row::new([
            Line::from(actor.pid.to_string()),
            Line::from(
                actor.names.iter().chain(&actor.label).map(String::as_str).collect::<Vec<_>>().join(", "),
            ),
            Line::from(state),
            count(actor.mailbox as u64),
            rate(row.messages_per_s),
            rate(row.polls_per_s),
            count(actor.overruns),
            rate(row.cycles_per_s.filter(|_| actor.cycles > 0)),
            count(actor.monitors as u64),
            count(actor.links as u64),
        ])
    };
    let names = [
        "ACTOR",
        "NAME, LABEL",
        "STATE",
        "MAILBOX",
        "MESSAGES/S",
        "POLLS/S",
        "OVERRUNS",
        "CYCLES/S",
        "WATCHED",
        "LINKS",
    ];
    let widths = [20, 24, 7, 7, 10, 8, 8, 8, 7, 6].map(Constraint::Length);
    let rows = model.actors.iter().skip(app.skipped).take(area.height.into()).map(row);
    frame.render_widget(Table::new(rows, widths).header(header(3, &names)), area);
}

#[cfg(test)]
pub mod tests {
    use corelet::observer::protocol::{Actor, Core, Hello, Overview, Pool, Shard};

    use super::*;
    use crate::top::client::Sample;
    use crate::top::model::Sort;

    pub fn actor(index: u32, label: &str) -> Actor {
        Actor {
            pid: format!("<0.{index}.7>").parse().unwrap(),
            parent: None,
            supervisor: None,
            state: State::Parked,
            names: Vec::new(),
            label: (!label.is_empty()).then(|| label.into()),
            traps_exits: false,
            mailbox: 0,
            monitors: 0,
            links: 0,
            joiners: 0,
            polls: 10,
            overruns: 0,
            messages_received: 0,
            cycles: 0,
        }
    }

    /// A process so many seconds after it opened its observer.
    pub fn sample(seconds: u64) -> Sample {
        let at_ns = seconds * 1_000_000_000;
        let core =
            |core| Core { core, at_ns, cpu_ns: Some(1_000_000_000), live: 3, polls: 1000, ..Core::default() };
        let shard = |core| Shard { core, idle: 1, leased: 2, acquires: 50, ..Shard::default() };
        Sample {
            hello: Hello { format: 1, process: 4242, program: "gateway".into() },
            overview: Overview {
                format: 1,
                at_ns,
                cores: vec![core(0), core(1)],
                missing: Vec::new(),
                pools: vec![Pool {
                    pool: 1,
                    connector: "corelet::pool::connector::TcpConnector".into(),
                    slots: 4,
                    closed: false,
                    shards: vec![shard(0), shard(1)],
                }],
                actors: 3,
            },
            actors: vec![actor(0, "listener"), actor(1, "scheduler of pool 1"), actor(2, "")],
        }
    }

    /// The app after two looks, between which something has happened.
    fn app() -> App {
        let mut app = App::new(Sort::Polls);
        app.hear(Ok(sample(1)));
        let mut latest = sample(2);
        let core = &mut latest.overview.cores[0];
        (core.cpu_ns, core.polls, core.parks, core.enters) = (Some(1_930_000_000), 211_000, 12_000, 98_700);
        (core.ready, core.in_flight) = (3, 18);
        let shard = &mut latest.overview.pools[0].shards[1];
        (shard.waiting, shard.acquires, shard.waits, shard.opens) = (12, 20_050, 1500, 2);
        let busy = &mut latest.actors[2];
        (busy.state, busy.polls, busy.messages_received, busy.mailbox) = (State::Queued, 13_010, 7, 3);
        busy.names = vec!["front".into(), "desk".into()];
        (busy.overruns, busy.cycles, busy.monitors, busy.links) = (5, 2_500_000, 1, 2);
        app.hear(Ok(latest));
        app
    }

    #[test]
    fn the_screen_shows_cores_pools_and_actors() {
        let expected = [
            "gateway (process 4242)   2 cores   3 actors by polls   s sort  r reverse  q quit",
            "",
            "CORE      BUSY  READY  ACTORS  POLLS/S  PARKS/S   RING  ENTERS/S  TIMERS  OVERRUNS   LOST",
            "0         93 %      3       3     210k      12k     18       99k       0         0      0",
            "1          0 %      0       3        0        0      0         0       0         0      0",
            "",
            "POOL      CONNECTOR         CORE   IDLE LEASED WAITING OPENING ACQUIRES/S  WAITS/S  OPENS  CLOSES REFUSED",
            "1         TcpConnector         0      1      2       0       0          0        0      0       0       0",
            "                               1      1      2      12       0        20k     1500      2       0       0",
            "",
            "ACTOR                NAME, LABEL              STATE   MAILBOX MESSAGES/S  POLLS/S OVERRUNS CYCLES/S WATCHED  LINKS",
            "<0.2.7>              front, desk              ready         3          7      13k        5     2.5M       1      2",
            "<0.0.7>              listener                 waits         0          0        0        0        -       0      0",
            "<0.1.7>              scheduler of pool 1      waits         0          0        0        0        -       0      0",
        ];
        assert_eq!(plain(&app(), usize::MAX).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn trouble_and_missing_cores_are_told_above_what_was_seen_last() {
        let mut app = app();
        app.model.as_mut().unwrap().missing = vec![1, 5];
        let screen = plain(&app, usize::MAX);
        assert!(screen.lines().nth(1).unwrap().starts_with("no answer from core 1, 5:"), "{screen}");
        app.trouble = Some("gateway (process 4242) has ended".into());
        let screen = plain(&app, usize::MAX);
        assert_eq!(screen.lines().nth(1), Some("gateway (process 4242) has ended"));
        assert!(screen.contains("scheduler of pool 1"));
    }

    #[test]
    fn before_the_first_look_there_is_what_keeps_it() {
        let mut app = App::new(Sort::Polls);
        assert_eq!(screen(&app, 40, 2), "looking ...\n\n");
        app.trouble = Some("no answer".into());
        assert_eq!(screen(&app, 40, 2), "no answer\n\n");
    }

    #[test]
    fn a_screen_of_any_size_will_do() {
        let mut app = app();
        app.skipped = 2;
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            screen(&app, width, height);
        }
    }

    #[test]
    fn only_so_many_actors_are_printed_and_those_scrolled_past_are_not() {
        let mut app = app();
        assert!(plain(&app, 1).ends_with("      2\n"));
        app.skipped = 1;
        let screen = plain(&app, usize::MAX);
        assert!(!screen.contains("<0.2.7>") && screen.contains("<0.1.7>"), "{screen}");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.04, 0.5, 9.96, 42.4, 9999.0, 10_000.0, 999_499.0, 1.25e6, 98.7e6, 3.21e9];
        assert_eq!(
            shown.map(short),
            ["0", "0", "0.5", "10.0", "42", "9999", "10k", "999k", "1.2M", "99M", "3.2G"]
        );
    }
}
