//! A server's figures for the `metrics` facade.
//!
//! The names are here whether the feature is on or not, so that they can be checked against the documents. Everything
//! else does nothing without the feature, and under the model checker.

use super::server::ServerCoreStats;
pub use crate::metric::{Metric, MetricKind};

macro_rules! metrics {
    ($($kind:ident $name:literal $description:literal $read:expr;)*) => {
        /// Every metric that servers publish with the feature `metrics`, labelled with `server`, the first address, and `core`;
        /// the last one with `reason` besides.
        pub const METRICS: &[Metric] = &[
            $(Metric { name: $name, kind: MetricKind::$kind, description: $description },)*
            Metric {
                name: "corelet_service_closes_total",
                kind: MetricKind::Counter,
                description: "Connections that ended, labelled with the reason",
            },
        ];

        /// Where the figures come from, in the same order.
        #[allow(dead_code)]
        const READ: &[fn(&ServerCoreStats) -> u64] = &[$($read),*];
    };
}

metrics! {
    Gauge "corelet_service_open" "Open connections" |core| core.open;
    Gauge "corelet_service_in_preamble" "Open connections that are in their preamble" |core| core.in_preamble;
    Counter "corelet_service_accepted_total" "Connections accepted" |core| core.accepted;
    Counter "corelet_service_accept_errors_total" "Accepts that failed" |core| core.accept_errors;
    Counter "corelet_service_refused_total" "Connections refused because there were too many" |core| core.refused;
    Counter "corelet_service_preambles_failed_total" "Preambles that were refused, too slow, too long or broken off"
        |core| core.preambles_failed;
    Counter "corelet_service_forced_total" "Connections dropped at the end of a drain's time" |core| core.forced;
    Counter "corelet_service_requests_total" "Requests received" |core| core.counts.requests;
    Counter "corelet_service_unrouted_total" "Requests that had no route" |core| core.counts.unrouted;
    Counter "corelet_service_rejected_total" "Requests that an extractor refused" |core| core.counts.rejected;
    Counter "corelet_service_failed_total" "Requests whose handler gave an error" |core| core.counts.failed;
    Counter "corelet_service_panicked_total" "Requests whose handler panicked" |core| core.counts.panicked;
    Counter "corelet_service_timed_out_total" "Requests whose handler took too long" |core| core.counts.timed_out;
    Counter "corelet_service_cancelled_total" "Requests given up because their connection ended"
        |core| core.counts.cancelled;
    Counter "corelet_service_frames_out_total" "Frames encoded, pushes among them" |core| core.counts.frames_out;
    Counter "corelet_service_pushes_total" "Pushed frames encoded" |core| core.counts.pushes;
    Counter "corelet_service_pushes_dropped_total" "Pushed frames whose connection ended before their turn"
        |core| core.counts.pushes_dropped;
    Counter "corelet_service_bytes_in_total" "Bytes received" |core| core.counts.bytes_in;
    Counter "corelet_service_bytes_out_total" "Bytes sent" |core| core.counts.bytes_out;
}

#[cfg(all(feature = "metrics", not(loom)))]
pub(super) use published::CoreMetrics;
#[cfg(not(all(feature = "metrics", not(loom))))]
pub(super) use unpublished::CoreMetrics;

/// Whether anything is published.
pub(super) const ENABLED: bool = cfg!(all(feature = "metrics", not(loom)));

#[cfg(all(feature = "metrics", not(loom)))]
mod published {
    use metrics::{Counter, Gauge, Label, Unit};

    use super::{METRICS, MetricKind, READ};
    use crate::runtime::CoreId;
    use crate::runtime::executor::contain;
    use crate::service::connection::EndReason;
    use crate::service::server::ServerCoreStats;

    enum Cell {
        Counter(Counter),
        Gauge(Gauge),
    }

    /// The registered metrics of one core, and what they were last told.
    pub(in crate::service) struct CoreMetrics {
        cells: Vec<Cell>,
        told: Vec<u64>,
    }

    impl CoreMetrics {
        /// Registers with the recorder that is installed now.
        pub(in crate::service) fn new(server: &str, core: CoreId) -> CoreMetrics {
            let mut cells = Vec::new();
            // A recorder is a user's.
            contain("a recorder's metrics", || cells = register(server, core));
            let told = vec![0; cells.len()];
            CoreMetrics { cells, told }
        }

        /// Tells what has changed since the last call.
        pub(in crate::service) fn publish(&mut self, stats: &ServerCoreStats) {
            let figures = READ.iter().map(|read| read(stats)).chain(stats.counts.closed);
            for ((cell, told), now) in self.cells.iter().zip(&mut self.told).zip(figures) {
                if std::mem::replace(told, now) == now {
                    continue;
                }
                contain("a recorder's metrics", || match cell {
                    Cell::Counter(counter) => counter.absolute(now),
                    Cell::Gauge(gauge) => gauge.set(now as f64),
                });
            }
        }
    }

    /// A cell for each metric, and in the place of the last one a cell for each reason.
    fn register(server: &str, core: CoreId) -> Vec<Cell> {
        let labels = vec![Label::new("server", server.to_owned()), Label::new("core", core.to_string())];
        let mut cells = Vec::new();
        for metric in METRICS {
            let unit = if metric.name.contains("_bytes_") { Unit::Bytes } else { Unit::Count };
            match metric.kind {
                MetricKind::Gauge => {
                    metrics::describe_gauge!(metric.name, unit, metric.description);
                    cells.push(Cell::Gauge(metrics::gauge!(metric.name, labels.clone())));
                }
                _ => {
                    metrics::describe_counter!(metric.name, unit, metric.description);
                    if cells.len() < READ.len() {
                        cells.push(Cell::Counter(metrics::counter!(metric.name, labels.clone())));
                    }
                }
            }
        }
        let closes = METRICS[READ.len()].name;
        cells.extend(EndReason::ALL.map(|reason| {
            let mut labels = labels.clone();
            labels.push(Label::new("reason", reason.name()));
            Cell::Counter(metrics::counter!(closes, labels))
        }));
        cells
    }
}

#[cfg(not(all(feature = "metrics", not(loom))))]
mod unpublished {
    use crate::runtime::CoreId;
    use crate::service::server::ServerCoreStats;

    pub(in crate::service) struct CoreMetrics;

    impl CoreMetrics {
        pub(in crate::service) fn new(_: &str, _: CoreId) -> CoreMetrics {
            CoreMetrics
        }

        pub(in crate::service) fn publish(&mut self, _: &ServerCoreStats) {}
    }
}
