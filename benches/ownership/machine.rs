//! Where and how the figures were made: what must be known to compare them.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

/// What the bench was built with and runs on, beside its parameters.
pub fn describe(parameters: &[(&str, String)]) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: String| fields.insert(name.to_owned(), Value::from(value));
    put(
        "profile",
        if cfg!(debug_assertions) { "with debug assertions" } else { "bench, optimised" }.to_owned(),
    );
    put("features", features().join(", "));
    for (name, value) in parameters {
        put(name, value.clone());
    }
    put("machine", machine());
    put("kernel", first_line(fs::read_to_string("/proc/sys/kernel/osrelease").ok()));
    put("toolchain", output("rustc", &["--version"]));
    put("commit", output("git", &["describe", "--always", "--dirty", "--exclude", "*"]));
    json!(fields)
}

fn features() -> Vec<&'static str> {
    let features = [
        ("pool", cfg!(feature = "pool")),
        ("service", cfg!(feature = "service")),
        ("framed", cfg!(feature = "framed")),
        ("metrics", cfg!(feature = "metrics")),
        ("tokio", cfg!(feature = "tokio")),
        ("tokio-uring", cfg!(feature = "tokio-uring")),
        ("observer", cfg!(feature = "observer")),
        ("cycles", cfg!(feature = "cycles")),
        ("console", cfg!(feature = "console")),
    ];
    features.into_iter().filter_map(|(name, enabled)| enabled.then_some(name)).collect()
}

fn machine() -> String {
    let known = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = known.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = known.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {cores} cores", model.unwrap_or(std::env::consts::ARCH))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    first_line(output.and_then(|output| String::from_utf8(output.stdout).ok()))
}

fn first_line(text: Option<String>) -> String {
    text.as_deref().and_then(|text| text.lines().next()).unwrap_or("unknown").to_owned()
}
