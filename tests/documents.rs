//! The documents for users name all there is to name.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use corelet::pool::{CloseReason, METRICS};

const OPERATIONS: &str = include_str!("../docs/operations.md");

/// The variants of the enum `name` in a source file of the library, in which they are indented by four spaces.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let begin = source.find(&format!("pub enum {name} {{")).expect("the enum is in this file");
    let body = &source[begin..][..source[begin..].find("\n}").expect("the enum has an end")];
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().expect("a split has a first part"))
        .collect()
}

#[test]
fn operations_explains_every_metric() {
    for metric in METRICS {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let row = format!("| `{}` | {kind} |", metric.name);
        assert!(OPERATIONS.contains(&row), "docs/operations.md has no row {row:?}");
    }
    let rows = OPERATIONS.lines().filter(|line| line.starts_with("| `corelet_pool_")).count();
    assert_eq!(rows, METRICS.len(), "docs/operations.md explains a metric that there is not");
}

#[test]
fn operations_explains_every_reason_for_a_close() {
    for reason in CloseReason::ALL {
        assert!(OPERATIONS.contains(&format!("| `{}` |", reason.name())), "{reason:?} is missing");
    }
}

#[test]
#[cfg(feature = "service")]
fn operations_explains_every_reason_for_the_end_of_a_connection() {
    let begin = OPERATIONS.find("### Reasons for an end").expect("there is such a section");
    let section = OPERATIONS[begin..].split("### Ending").next().expect("a split has a first part");
    for reason in corelet::service::EndReason::ALL {
        assert!(section.contains(&format!("| `{}` |", reason.name())), "{reason:?} is missing");
    }
    assert_eq!(
        section.lines().filter(|line| line.starts_with("| `")).count(),
        corelet::service::EndReason::ALL.len() + 1
    );
}

#[test]
fn operations_explains_every_error_of_an_acquire() {
    let errors = variants(include_str!("../src/pool/error.rs"), "AcquireError");
    assert!(errors.len() > 5 && errors.contains(&"Saturated"), "{errors:?}");
    for error in errors.into_iter().filter(|error| *error != "Timeout") {
        assert!(OPERATIONS.contains(&format!("| `{error}` |")), "{error} is missing");
    }
    let stages = variants(include_str!("../src/pool/scheduler/outcome.rs"), "Stage");
    assert!(stages.contains(&"Waiting"), "{stages:?}");
    for stage in stages {
        assert!(OPERATIONS.contains(&format!("| `Timeout`, stage `{stage}` |")), "{stage} is missing");
    }
}
