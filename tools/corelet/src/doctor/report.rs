//! What `corelet doctor` prints.

use std::fmt::Write;

use super::checks::{Check, Status};

/// Of the JSON object.
const FORMAT: u32 = 1;

#[derive(serde::Serialize)]
pub struct Report {
    format: u32,
    /// Whether corelet starts here.
    well: bool,
    checks: Vec<Check>,
}

impl Report {
    pub fn new(checks: Vec<Check>) -> Report {
        let well = checks.iter().all(|check| check.status != Status::Fail);
        Report { format: FORMAT, well, checks }
    }

    pub fn is_well(&self) -> bool {
        self.well
    }

    pub fn json(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text + "\n",
            Err(error) => unreachable!("numbers and texts can be written: {error}"),
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let status = match check.status {
                Status::Ok => "ok  ",
                Status::Warn => "warn",
                Status::Fail => "FAIL",
            };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{status}  {:13}  {}", check.name, check.found);
            if let Some(remedy) = &check.remedy {
                let _ = writeln!(text, "                     -> {remedy}");
            }
        }
        text += match self.checks.iter().any(|check| check.status == Status::Warn) {
            _ if !self.well => "corelet does not start here\n",
            true => "corelet starts here, with warnings\n",
            false => "corelet starts here\n",
        };
        text
    }
}
