//! What a published metric is, for whatever publishes some.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// A level.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One metric that is published with the feature `metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// What it counts or measures.
    pub description: &'static str,
}
