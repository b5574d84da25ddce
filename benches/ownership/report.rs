//! What a run came to, an object a line: first the machine and the counters' meanings, then a row for each case.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::counts::{Counter, Counts};
use super::latency::{Latency, PERCENTILES};
use super::samples::Spread;

/// Which row it is. Criterion knows a timed one as `scope/case/subject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub scope: &'static str,
    /// The scenario and its parameters.
    pub case: String,
    pub subject: &'static str,
    /// Whether the subject is what came before.
    pub reference: bool,
}

impl Label {
    pub fn new(
        scope: &'static str,
        case: impl Into<String>,
        subject: &'static str,
        reference: bool,
    ) -> Label {
        Label { scope, case: case.into(), subject, reference }
    }
}

/// A row of the table.
pub struct Row {
    pub label: Label,
    /// What one operation is.
    pub operation: &'static str,
    pub counts: Option<Counts>,
    pub spread: Option<Spread>,
    /// Of what, and how long each took.
    pub latency: Option<(&'static str, Latency)>,
}

impl Row {
    fn to_json(&self) -> Value {
        let Label { scope, case, subject, reference } = &self.label;
        let counted = |counts: &Counts| {
            let counters: Map<String, Value> = counts
                .counted
                .iter()
                .map(|(counter, value)| (counter.name().to_owned(), Value::from(*value)))
                .collect();
            json!({
                "operations": counts.operations, "allocations": counts.allocations, "counters": counters,
            })
        };
        let timed = |spread: &Spread| json!({ "median": spread.median, "least": spread.least, "greatest": spread.greatest });
        let distribution = |(of, latency): &(&str, Latency)| {
            let percentiles: Vec<(f64, u64)> = PERCENTILES.map(|share| (share, latency.at(share))).to_vec();
            json!({ "of": of, "operations": latency.len(), "percentiles": percentiles, "curve": latency.curve() })
        };
        json!({
            "scope": scope,
            "case": case,
            "subject": subject,
            "reference": reference,
            "operation": self.operation,
            "ns_per_op": self.spread.as_ref().map(timed),
            "counts": self.counts.as_ref().map(counted),
            "latency_ns": self.latency.as_ref().map(distribution),
        })
    }
}

/// All lines of a run.
pub fn lines(machine: Value, rows: &[Row]) -> Vec<String> {
    let meanings: Map<String, Value> = Counter::ALL
        .into_iter()
        .map(|counter| (counter.name().to_owned(), Value::from(counter.meaning())))
        .collect();
    let first = json!({ "format": 1, "machine": machine, "counters": meanings });
    std::iter::once(first).chain(rows.iter().map(Row::to_json)).map(|line| line.to_string()).collect()
}

/// Where the lines go. A trial run, whose figures mean nothing, has a file of its own.
pub fn path(target: &Path, trial: bool) -> PathBuf {
    target.join("baselines").join(if trial { "ownership-trial.jsonl" } else { "ownership.jsonl" })
}

pub fn write(path: &Path, lines: &[String]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, lines.join("\n") + "\n")
}
