//! Results as tables for people.

use std::fmt::Write;

use serde_json::Value;

use crate::results::{Counts, Results, Row};

const NOTHING: &str = "–";

/// The whole generated part; `charts` are titles and files.
pub fn render(results: &Results, charts: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in &results.machine {
        line(&mut out, format_args!("- {name}: {}", value.as_str().unwrap_or(NOTHING)));
    }
    for scope in results.scopes() {
        line(&mut out, format_args!("\n### Scope `{scope}`\n"));
        scope_table(&mut out, results, scope);
    }
    line(&mut out, format_args!("\n### How long single operations took (ns)\n"));
    latency_table(&mut out, results);
    for (title, file) in charts {
        line(&mut out, format_args!("\n![{title}]({file})"));
    }
    line(&mut out, format_args!("\n### What the counters count\n\n| counter | counts |\n|---|---|"));
    for (name, meaning) in &results.counters {
        line(&mut out, format_args!("| `{name}` | {} |", meaning.as_str().unwrap_or(NOTHING)));
    }
    out
}

fn line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes whatever is written.
    let _ = writeln!(out, "{line}");
}

fn scope_table(out: &mut String, results: &Results, scope: &str) {
    line(
        out,
        format_args!(
            "| case | subject | one operation | ns | least to greatest | ratio | allocations | counted |"
        ),
    );
    line(out, format_args!("|---|---|---|---|---|---|---|---|"));
    for row in results.by_case(scope) {
        let (time, range) = match row.ns_per_op {
            Some(spread) => (figure(spread.median), range(spread.least, spread.greatest)),
            None => (NOTHING.to_owned(), NOTHING.to_owned()),
        };
        let ratio = results.ratio(row).map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.2}"));
        let allocations = row.counts.as_ref().map_or(NOTHING.to_owned(), allocations);
        let counted = row.counts.as_ref().map_or(NOTHING.to_owned(), counted);
        line(
            out,
            format_args!(
                "| {} | {} | {} | {time} | {range} | {ratio} | {allocations} | {counted} |",
                row.case,
                subject(row),
                row.operation,
            ),
        );
    }
}

fn latency_table(out: &mut String, results: &Results) {
    let Some(first) = results.rows.iter().find_map(|row| row.latency_ns.as_ref()) else { return };
    let mut header = "| case | subject | one operation | operations |".to_owned();
    for (percentile, _) in &first.percentiles {
        let _ = write!(
            header,
            " {} |",
            if *percentile < 100.0 { format!("p{percentile}") } else { "longest".to_owned() }
        );
    }
    line(out, format_args!("{header}\n|---|---|---|---{}|", "|---".repeat(first.percentiles.len())));
    for scope in results.scopes() {
        for row in results.by_case(scope) {
            let Some(latency) = &row.latency_ns else { continue };
            let mut cells = format!(
                "| {scope}/{} | {} | {} | {} |",
                row.case,
                subject(row),
                latency.of,
                whole(latency.operations),
            );
            for (_, nanoseconds) in &latency.percentiles {
                let _ = write!(cells, " {} |", whole(*nanoseconds));
            }
            line(out, format_args!("{cells}"));
        }
    }
}

fn subject(row: &Row) -> String {
    if row.reference { row.subject.clone() } else { format!("**{}**", row.subject) }
}

/// Per operation.
fn allocations(counts: &Counts) -> String {
    let each = counts.allocations as f64 / counts.operations as f64;
    if counts.operations == 1 { whole(counts.allocations) } else { format!("{each:.2}") }
}

fn counted(counts: &Counts) -> String {
    let counters = counts.counters.iter().map(|(name, value)| format!("`{name}` {}", number(value)));
    let counters: Vec<String> = counters.collect();
    match counters.len() {
        0 => NOTHING.to_owned(),
        _ => format!("{} in {}", counters.join(", "), whole(counts.operations)),
    }
}

fn number(value: &Value) -> String {
    value.as_u64().map_or(NOTHING.to_owned(), whole)
}

fn range(least: f64, greatest: f64) -> String {
    format!("{} to {}", figure(least), figure(greatest))
}

/// Three digits or so: more are noise.
fn figure(value: f64) -> String {
    if value < 1_000.0 { format!("{value:.1}") } else { whole(value.round() as u64) }
}

/// With commas between the thousands.
fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::EXAMPLE;

    #[test]
    fn a_row_has_its_figures_and_its_counts() {
        let results = Results::parse(EXAMPLE).unwrap();
        let table = render(&results, &[("Waits", "waits.svg")]);
        for expected in [
            "- profile: bench",
            "| contended | **actor** | a lease | 20.0 | 19.0 to 2,101 | – | 0.00 | `tasks_spawned` 0 in 1,000 |",
            "| contended | on_demand | a lease | 50.0 | 49.0 to 51.0 | 2.50 | 3.50 | `tasks_spawned` 2,000 in 1,000 |",
            "| life | **actor** | a life | – | – | – | 7 | – |",
            "| case | subject | one operation | operations | p50 | p99 |",
            "| pool/contended | on_demand | a wait | 9 | 300 | 3,200 |",
            "![Waits](waits.svg)",
            "| `tasks_spawned` | tasks |",
        ] {
            assert!(table.lines().any(|line| line == expected), "no line {expected}\n{table}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
    }
}
