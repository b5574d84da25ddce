//! Distributions as charts.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::results::{Latency, Results, Row};

const SIZE: (u32, u32) = (720, 400);
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 92, 175), RGBColor(200, 80, 20), RGBColor(90, 130, 60), RGBColor(130, 90, 160)];
/// Nines on the horizontal axis: up to the 99.99th percentile.
const NINES: f64 = 4.0;

/// One case, with a curve for each subject.
pub struct Chart {
    pub title: String,
    /// In the folder of the document.
    pub file: String,
    pub svg: String,
}

/// A chart for each case that has distributions.
pub fn charts(results: &Results) -> Result<Vec<Chart>> {
    let mut charts: Vec<Chart> = Vec::new();
    for scope in results.scopes() {
        let rows = results.by_case(scope);
        for case in rows.chunk_by(|one, other| one.case == other.case) {
            let curves: Vec<(&Row, &Latency)> =
                case.iter().filter_map(|row| Some((*row, row.latency_ns.as_ref()?))).collect();
            if let Some((first, latency)) = curves.first() {
                let title = format!("{scope}, {}: {}", first.case, latency.of);
                let file = format!("baselines-{scope}-{}.svg", first.case.replace(['/', '_'], "-"));
                let svg = draw(&title, &curves).map_err(|error| anyhow!("cannot draw {file}: {error}"))?;
                charts.push(Chart { title, file, svg });
            }
        }
    }
    Ok(charts)
}

/// How many nines a percentile has: 0 at 0, 1 at 90, 2 at 99.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The curve as far as the chart goes.
fn points(latency: &Latency) -> impl Iterator<Item = (f64, f64)> {
    let points =
        latency.curve.iter().map(|(percentile, nanoseconds)| (nines(*percentile), *nanoseconds as f64));
    points.filter(|(nines, _)| *nines <= NINES)
}

fn draw(title: &str, curves: &[(&Row, &Latency)]) -> Result<String, Box<dyn std::error::Error>> {
    let heights =
        || curves.iter().flat_map(|(_, latency)| points(latency)).map(|(_, nanoseconds)| nanoseconds);
    let least = heights().fold(f64::MAX, f64::min).max(1.0);
    let greatest = heights().fold(1.0, f64::max).max(least * 2.0);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            // Half of the last label.
            .margin_right(36)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..NINES, (least * 0.8..greatest * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_labels(5)
            .x_label_formatter(&|nines| percentile_label(*nines))
            .x_desc("percentile of operations")
            .y_label_formatter(&|nanoseconds| duration_label(*nanoseconds))
            .draw()?;
        for (index, (row, latency)) in curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(points(latency), colour.stroke_width(2)))?
                .label(row.subject.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 11))
            .background_style(WHITE)
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

fn percentile_label(nines: f64) -> String {
    let decimals = (nines.round() as usize).saturating_sub(2);
    format!("{:.decimals$} %", 100.0 - 100.0 * 10_f64.powf(-nines))
}

fn duration_label(nanoseconds: f64) -> String {
    match nanoseconds {
        ..1e3 => format!("{nanoseconds:.0} ns"),
        ..1e6 => format!("{} µs", nanoseconds / 1e3),
        _ => format!("{} ms", nanoseconds / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::EXAMPLE;

    #[test]
    fn a_case_has_one_chart_with_all_its_subjects() {
        let charts = charts(&Results::parse(EXAMPLE).unwrap()).unwrap();
        assert_eq!(charts.len(), 1);
        let Chart { title, file, svg } = &charts[0];
        assert_eq!(
            (title.as_str(), file.as_str()),
            ("pool, contended: a wait", "baselines-pool-contended.svg")
        );
        for text in ["actor", "on_demand", "99 %", "99.99 %"] {
            assert!(svg.contains(&format!("\n{text}\n")), "no text {text}\n{svg}");
        }
        assert!(svg.len() < 50_000, "{} bytes", svg.len());
    }

    #[test]
    fn percentiles_stretch_towards_the_slowest() {
        assert_eq!([0.0, 90.0, 99.0].map(|percentile| nines(percentile).round()), [0.0, 1.0, 2.0]);
        assert_eq!([0.0, 1.0, 2.0, 3.0].map(percentile_label), ["0 %", "90 %", "99 %", "99.9 %"]);
        let example = Results::parse(EXAMPLE).unwrap();
        let latency = example.rows[0].latency_ns.as_ref().unwrap();
        assert_eq!(points(latency).count(), 3, "what is at 100 % has no place on the chart");
    }
}
