//! `corelet doctor`: looks at the machine, judges, reports.

mod checks;
mod machine;
mod report;

use std::process::ExitCode;

use crate::cli::Doctor;
use machine::Machine;
use report::Report;

pub fn run(options: &Doctor) -> ExitCode {
    let report = Report::new(checks::examine(&Machine::look()));
    let text = if options.json { report.json() } else { report.text() };
    // Whoever reads may have gone; the exit status says the same.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
