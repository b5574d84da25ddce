//! What a run came to: a table by shard, the latencies, and one line for machines.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use corelet::pool::{CloseReason, PoolStats, ShardStats};

use crate::load::Tally;

/// The widest bar of the latency histogram.
const BAR: u64 = 40;

pub struct Report {
    pub tally: Tally,
    pub took: Duration,
    pub stats: PoolStats,
    /// Whether all leases had come back when the pool was closed.
    pub drained: bool,
}

impl Report {
    /// Whether no request got another one's reply, and no connection went missing.
    pub fn is_sound(&self) -> bool {
        self.tally.mismatched == 0 && self.drained
    }

    pub fn print(&self) {
        println!("\n{}\n", self.table());
        self.print_latencies();
        if let Some(error) = &self.tally.first_error {
            println!("first error: {error}");
        }
        println!("{}", self.last_line());
    }

    fn table(&self) -> Table {
        type Column = (&'static str, fn(&ShardStats) -> u64);
        let columns: [Column; 8] = [
            ("acquires", |shard| shard.acquires),
            ("waits", |shard| shard.capacity_waits),
            ("refused", |shard| shard.timed_out + shard.saturated + shard.refused),
            ("forwards", |shard| shard.forwards),
            ("lends", |shard| shard.lends),
            ("opens", |shard| shard.opens),
            ("failed\nopens", |shard| shard.connect_failures),
            ("scheduler\nspawns", |shard| shard.scheduler_spawns),
        ];
        let closes = CloseReason::ALL.iter().map(|reason| format!("closed\n{}", reason.name()));
        let heads = columns.iter().map(|(head, _)| head.to_string());
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["shard".to_string()].into_iter().chain(heads).chain(closes));
        for shard in &self.stats.shards {
            let closes = CloseReason::ALL.iter().map(|reason| shard.closed_for(*reason));
            let counts = columns.iter().map(|(_, count)| count(shard)).chain(closes);
            let name = format!("core {}", shard.core);
            table.add_row([name].into_iter().chain(counts.map(|count| count.to_string())));
        }
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table
    }

    fn print_latencies(&self) {
        let latency = &self.tally.latency;
        // Each bar is for latencies of up to twice the one before.
        let bars: Vec<_> = latency
            .iter_log(1000, 2.0)
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .skip_while(|(_, count)| *count == 0)
            .collect();
        let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        for (up_to, count) in bars {
            let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
            println!("up to {:>9} us {count:>10} {bar}", up_to.div_ceil(1000));
        }
        println!(
            "latency p50 {} us, p99 {} us, p99.9 {} us, max {} us",
            self.micros(0.5),
            self.micros(0.99),
            self.micros(0.999),
            self.micros(1.0),
        );
        println!("{:.0} requests/s", self.rate());
    }

    fn last_line(&self) -> String {
        let Tally { requests, errors, mismatched, .. } = &self.tally;
        format!(
            "requests={requests} errors={errors} mismatched={mismatched} forwards={} opens={} closes={} \
             p50_us={} p99_us={} p999_us={} rps={:.0}",
            self.stats.sum(|shard| shard.forwards),
            self.stats.sum(|shard| shard.opens - shard.connect_failures),
            self.stats.sum(|shard| shard.closes.iter().sum()),
            self.micros(0.5),
            self.micros(0.99),
            self.micros(0.999),
            self.rate(),
        )
    }

    fn micros(&self, quantile: f64) -> u64 {
        self.tally.latency.value_at_quantile(quantile).div_ceil(1000)
    }

    fn rate(&self) -> f64 {
        self.tally.requests as f64 / self.took.as_secs_f64()
    }
}
