//! What the bench wrote: a line about the machine, then a line a row.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The version of the lines that this understands.
const FORMAT: u32 = 1;

#[derive(Debug)]
pub struct Results {
    /// What was measured on, and with which parameters.
    pub machine: Map<String, Value>,
    /// What each counter counts.
    pub counters: Map<String, Value>,
    pub rows: Vec<Row>,
}

#[derive(Deserialize)]
struct First {
    format: u32,
    machine: Map<String, Value>,
    counters: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    pub scope: String,
    pub case: String,
    pub subject: String,
    /// Whether the subject is what came before.
    pub reference: bool,
    pub operation: String,
    pub ns_per_op: Option<Spread>,
    pub counts: Option<Counts>,
    pub latency_ns: Option<Latency>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

#[derive(Debug, Deserialize)]
pub struct Counts {
    pub operations: u64,
    pub allocations: u64,
    pub counters: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub struct Latency {
    /// What took so long.
    pub of: String,
    pub operations: u64,
    /// Percentile and nanoseconds.
    pub percentiles: Vec<(f64, u64)>,
    pub curve: Vec<(f64, u64)>,
}

impl Results {
    pub fn parse(text: &str) -> Result<Results> {
        let mut lines = text.lines();
        let first = lines.next().context("the results are empty")?;
        let first: First = serde_json::from_str(first).context("the first line is not about a machine")?;
        ensure!(first.format == FORMAT, "the results are of format {}, not {FORMAT}", first.format);
        let mut rows: Vec<Row> = Vec::new();
        for line in lines {
            let row: Row = serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
            if let Some(counts) = &row.counts {
                ensure!(counts.operations > 0, "{} counts no operation", row.case);
                for counter in counts.counters.keys() {
                    ensure!(first.counters.contains_key(counter), "nobody says what {counter} counts");
                }
            }
            if rows.iter().any(|other| other.key() == row.key()) {
                bail!("{:?} is there twice", row.key());
            }
            rows.push(row);
        }
        ensure!(!rows.is_empty(), "there are no rows");
        Ok(Results { machine: first.machine, counters: first.counters, rows })
    }

    /// Each scope once, in the order in which they come.
    pub fn scopes(&self) -> Vec<&str> {
        let mut scopes: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !scopes.contains(&row.scope.as_str()) {
                scopes.push(&row.scope);
            }
        }
        scopes
    }

    /// The rows of a scope, those of a case next to each other and the reference behind what it is compared with.
    pub fn by_case(&self, scope: &str) -> Vec<&Row> {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.scope == scope).collect();
        let first = |row: &Row| rows.iter().position(|other| other.case == row.case);
        let mut sorted = rows.clone();
        sorted.sort_by_key(|row| (first(row), row.reference));
        sorted
    }

    /// How many times as long as the case's own subject `row` took, if it is a reference and both were timed.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        let mut own = self.rows.iter().filter(|own| !own.reference && own.scope == row.scope);
        let own = own.find(|own| row.reference && own.case == row.case)?;
        Some(row.ns_per_op?.median / own.ns_per_op?.median)
    }
}

impl Row {
    fn key(&self) -> (&str, &str, &str) {
        (&self.scope, &self.case, &self.subject)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A subject and its reference, timed and counted, with a distribution.
    pub const EXAMPLE: &str = r#"{"format":1,"machine":{"profile":"bench","kernel":"6.1"},"counters":{"tasks_spawned":"tasks"}}
{"scope":"pool","case":"contended","subject":"actor","reference":false,"operation":"a lease","ns_per_op":{"median":20.0,"least":19.0,"greatest":2100.5},"counts":{"operations":1000,"allocations":0,"counters":{"tasks_spawned":0}},"latency_ns":{"of":"a wait","operations":9,"percentiles":[[50.0,100],[99.0,1200]],"curve":[[0.0,90],[50.0,100],[99.0,1200],[100.0,1300]]}}
{"scope":"pool","case":"life","subject":"actor","reference":false,"operation":"a life","ns_per_op":null,"counts":{"operations":1,"allocations":7,"counters":{}},"latency_ns":null}
{"scope":"pool","case":"contended","subject":"on_demand","reference":true,"operation":"a lease","ns_per_op":{"median":50.0,"least":49.0,"greatest":51.0},"counts":{"operations":1000,"allocations":3500,"counters":{"tasks_spawned":2000}},"latency_ns":{"of":"a wait","operations":9,"percentiles":[[50.0,300],[99.0,3200]],"curve":[[0.0,90],[50.0,300],[99.0,3200],[100.0,5300]]}}
"#;

    #[test]
    fn a_reference_is_divided_by_the_subject_of_its_case() {
        let results = Results::parse(EXAMPLE).unwrap();
        assert_eq!(results.scopes(), ["pool"]);
        let ratios: Vec<_> = results.rows.iter().map(|row| results.ratio(row)).collect();
        assert_eq!(ratios, [None, None, Some(2.5)]);
    }

    #[test]
    fn rows_of_a_case_stand_together_with_the_subject_first() {
        let results = Results::parse(EXAMPLE).unwrap();
        let order: Vec<_> =
            results.by_case("pool").iter().map(|row| (row.case.clone(), row.subject.clone())).collect();
        let expected = [("contended", "actor"), ("contended", "on_demand"), ("life", "actor")];
        assert_eq!(order, expected.map(|(case, subject)| (case.to_owned(), subject.to_owned())));
    }

    #[test]
    fn results_that_nobody_can_read_right_are_refused() {
        let twice = format!("{EXAMPLE}{}\n", EXAMPLE.lines().nth(1).unwrap());
        let unexplained = EXAMPLE.replace(r#""counters":{"tasks_spawned":"tasks"}"#, r#""counters":{}"#);
        let newer = EXAMPLE.replace(r#""format":1"#, r#""format":2"#);
        let nothing = EXAMPLE.lines().next().unwrap().to_owned();
        for (text, why) in [
            (twice, "is there twice"),
            (unexplained, "nobody says what tasks_spawned counts"),
            (newer, "format 2"),
            (nothing, "no rows"),
            (String::new(), "empty"),
        ] {
            let error = Results::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
