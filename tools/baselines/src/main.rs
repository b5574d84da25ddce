//! Makes the ownership part of `docs/baselines.md`, and its charts, of what the bench wrote.
//!
//! Never: measure anything, or judge a figure.

mod chart;
mod document;
mod results;
mod shape;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use results::Results;

/// Makes the table and the charts of what `cargo bench --bench ownership_baselines` measured.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// What the bench wrote [default: ownership.jsonl in the target folder's baselines/]
    #[arg(long)]
    results: Option<PathBuf>,
    /// Changes nothing: says whether the table in the document has the rows and columns of the results, whatever the figures
    #[arg(long)]
    check: bool,
    /// The results of a trial run (`-- --test`), whose figures mean nothing
    #[arg(long, requires = "check")]
    trial: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = cli.results.unwrap_or_else(|| default_results(&repository, cli.trial));
    let text = fs::read_to_string(&path)
        .with_context(|| format!("no results in {}; run the bench first", path.display()))?;
    let results = Results::parse(&text).with_context(|| format!("in {}", path.display()))?;
    let docs = repository.join("docs");
    if cli.check { check(&results, &docs) } else { generate(&results, &docs) }
}

/// Where the bench puts them, which it finds by the same variable.
fn default_results(repository: &Path, trial: bool) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let name = if trial { "ownership-trial.jsonl" } else { "ownership.jsonl" };
    repository.join(target).join("baselines").join(name)
}

fn generate(results: &Results, docs: &Path) -> Result<()> {
    let charts = chart::charts(results)?;
    let names: Vec<_> = charts.iter().map(|chart| (chart.title.as_str(), chart.file.as_str())).collect();
    let path = docs.join("baselines.md");
    let document = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let document = document::replace(&document, &table::render(results, &names))?;
    fs::write(&path, document)?;
    println!("{}", path.display());
    for chart in &charts {
        let path = docs.join(&chart.file);
        fs::write(&path, &chart.svg)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn check(results: &Results, docs: &Path) -> Result<()> {
    let charts = chart::charts(results)?;
    let names: Vec<_> = charts.iter().map(|chart| (chart.title.as_str(), chart.file.as_str())).collect();
    let document = fs::read_to_string(docs.join("baselines.md"))?;
    let present = shape::of(document::region(&document)?);
    let wanted = shape::of(&table::render(results, &names));
    if let Some((present, wanted)) = shape::difference(&present, &wanted) {
        bail!(
            "the table is of another shape than the results\n  in the document: {present}\n  in the results:  {wanted}"
        );
    }
    for chart in &charts {
        ensure!(docs.join(&chart.file).is_file(), "docs/{} is missing", chart.file);
    }
    println!("the table has the shape of the results");
    Ok(())
}
