//! Result lines: one JSON object each, or a table for people. The same rows feed both.

use crate::rounds::{Spread, ratio};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Write};

/// The subject all the others are divided by.
pub const BASELINE: &str = "corelet";

/// What every line ends with.
#[derive(Debug, Serialize)]
pub struct Common {
    pub rounds: usize,
    #[serde(serialize_with = "rounded")]
    pub min: f64,
    #[serde(serialize_with = "rounded")]
    pub max: f64,
    /// Absent on the baseline's own lines; null where the baseline did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
}

/// Time per operation divided by the baseline's in the same round.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Ratio(#[serde(serialize_with = "rounded_option")] Option<f64>);

impl Common {
    /// `spread` is of the line's headline figure; the times are per operation, one per round.
    pub fn new(subject: &str, spread: Spread, times: &[f64], baseline: Option<&[f64]>) -> Self {
        let ratio =
            (subject != BASELINE).then(|| Ratio(baseline.map(|baseline| self::ratio(times, baseline))));
        Self { rounds: times.len(), min: spread.min, max: spread.max, ratio }
    }
}

/// Three decimals are below the noise of any figure here.
pub fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1000.0).round() / 1000.0)
}

pub fn rounded_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => rounded(value, serializer),
        None => serializer.serialize_none(),
    }
}

/// Where a bench puts its lines.
pub enum Report {
    /// Printed at once, so that a reader behind a pipe sees progress.
    Json,
    /// Kept until the bench has ended, because a column is as wide as its widest cell.
    Table(Vec<Map<String, Value>>),
}

impl Report {
    pub fn new(json: bool) -> Self {
        if json { Self::Json } else { Self::Table(Vec::new()) }
    }

    pub fn line(&mut self, row: &impl Serialize) -> Result<()> {
        match (self, serde_json::to_value(row)?) {
            (Self::Table(rows), Value::Object(row)) => rows.push(row),
            (_, row) => {
                print(&row)?;
            }
        }
        Ok(())
    }

    /// Prints what was kept back.
    pub fn finish(self) -> Result<()> {
        if let Self::Table(rows) = self
            && !rows.is_empty()
        {
            print(&table(&rows))?;
        }
        Ok(())
    }
}

/// Nobody reads standard output any more, as when `head` has seen enough: not worth a message.
#[derive(Debug)]
pub struct ReaderGone;

impl std::error::Error for ReaderGone {}

impl Display for ReaderGone {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("standard output is closed")
    }
}

fn print(text: &impl Display) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => written.context("cannot write to standard output"),
    }
}

fn table(rows: &[Map<String, Value>]) -> Table {
    let columns = columns(rows);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(&columns);
    for row in rows {
        table.add_row(columns.iter().map(|column| cell(row.get(*column))));
    }
    for (index, column) in columns.iter().enumerate() {
        if rows.iter().any(|row| row.get(*column).is_some_and(Value::is_number)) {
            let column = table.column_mut(index).expect("one column per header cell");
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The fields of all the rows, those that only some have where these have them.
fn columns(rows: &[Map<String, Value>]) -> Vec<&String> {
    let mut columns: Vec<&String> = Vec::new();
    for row in rows {
        let mut place = 0;
        for field in row.keys() {
            match columns.iter().position(|column| *column == field) {
                Some(index) => place = index + 1,
                None => {
                    columns.insert(place, field);
                    place += 1;
                }
            }
        }
    }
    columns
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let decimals = if number.abs() >= 1000.0 { 0 } else { 2 };
            format!("{number:.decimals$}")
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Spread = Spread { median: 2.0, min: 1.0, max: 3.0 };

    #[test]
    fn the_ratio_is_absent_for_the_baseline_and_null_without_one() {
        let own = serde_json::to_string(&Common::new(BASELINE, SPREAD, &[1.0], Some(&[1.0]))).unwrap();
        assert_eq!(own, r#"{"rounds":1,"min":1.0,"max":3.0}"#);
        let alone = serde_json::to_string(&Common::new("bb8", SPREAD, &[1.0], None)).unwrap();
        assert_eq!(alone, r#"{"rounds":1,"min":1.0,"max":3.0,"ratio":null}"#);
        let peer = serde_json::to_string(&Common::new("bb8", SPREAD, &[3.0], Some(&[1.5]))).unwrap();
        assert_eq!(peer, r#"{"rounds":1,"min":1.0,"max":3.0,"ratio":2.0}"#);
    }

    #[test]
    fn a_field_that_some_rows_have_stands_where_they_have_it() {
        let rows = [
            serde_json::json!({"case": "push", "mode": "asleep", "ns": 1, "min": 1}),
            serde_json::json!({"case": "echo", "connections": 1, "ns": 1, "p50_us": 1, "min": 1, "ratio": 1}),
        ]
        .map(|row| row.as_object().unwrap().clone());
        assert_eq!(columns(&rows), ["case", "connections", "mode", "ns", "p50_us", "min", "ratio"]);
    }

    #[test]
    fn a_table_shows_every_column_and_a_dash_for_nothing() {
        let rows = [
            serde_json::json!({"subject": "corelet", "ns_per_op": 12.345}),
            serde_json::json!({"subject": "bb8", "ns_per_op": 1234.5, "ratio": null}),
        ]
        .map(|row| row.as_object().unwrap().clone());
        let text = table(&rows).to_string();
        for expected in ["ratio", "12.35", "1234", "corelet", "-"] {
            assert!(text.contains(expected), "{expected} missing in\n{text}");
        }
    }
}
