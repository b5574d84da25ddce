//! What a server publishes by the `metrics` facade is what its stats say, and the documents explain it.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

use corelet::service::{METRICS, MetricKind};

#[test]
fn every_metric_is_named_for_its_kind_and_explained() {
    let operations = include_str!("../docs/operations.md");
    for metric in METRICS {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
        assert_eq!(METRICS.iter().filter(|other| other.name == metric.name).count(), 1, "{}", metric.name);
        let kind = if metric.kind == MetricKind::Gauge { "gauge" } else { "counter" };
        assert!(operations.contains(&format!("| `{}` | {kind} |", metric.name)), "{}", metric.name);
    }
    let rows = operations.lines().filter(|line| line.starts_with("| `corelet_service_")).count();
    assert_eq!(rows, METRICS.len(), "docs/operations.md explains a metric that there is not");
}

#[cfg(feature = "metrics")]
mod support;

#[cfg(feature = "metrics")]
mod published {
    use std::collections::HashMap;
    use std::time::Duration;

    use corelet::net::TcpStream;
    use corelet::service::app::{Frame, Reply};
    use corelet::service::connection::EndReason;
    use corelet::service::{App, METRICS, Protocol, Server};
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use tokio_util::codec::LinesCodec;

    use crate::support::{on_cores, poll_until, soon};

    struct Lines;

    impl Protocol for Lines {
        type Codec = LinesCodec;
        type Request = String;
        type Response = String;
        type Id = ();
        type Session = ();

        fn codec(&self) -> LinesCodec {
            LinesCodec::new_with_max_length(1024)
        }

        fn session(&self) {}

        fn id(&self, _line: &String) -> Option<()> {
            Some(())
        }
    }

    #[test]
    fn what_is_published_is_what_is_counted() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().unwrap();
        on_cores(1, async move |runtime, cores| {
            let app = || App::new(Lines).route((), async |Frame(line): Frame<String>| Reply(line));
            let server = Server::new(app).bind(([127, 0, 0, 1], 0).into()).start(&runtime);
            let server = soon(server).await.unwrap();
            let mut clients = Vec::new();
            for _ in 0..3 {
                let mut client = TcpStream::connect(server.local_addr()).await.unwrap();
                client.write_all("hello\n").await.0.unwrap();
                let (read, _) = soon(client.read_exact(Vec::with_capacity(6), 6)).await;
                read.unwrap();
                clients.push(client);
            }
            clients.pop();
            poll_until(async || server.stats().await.sum(|core| core.ended) == 1).await;
            // Published each second, so the next time it is all of this.
            let address = server.local_addr().to_string();
            let mut told = HashMap::new();
            let mut open = 0.0;
            poll_until(async || {
                for (key, unit, description, value) in snapshotter.snapshot().into_vec() {
                    assert!(unit.is_some() && description.is_some(), "{key:?}");
                    let labels: HashMap<_, _> = key
                        .key()
                        .labels()
                        .map(|label| (label.key().to_owned(), label.value().to_owned()))
                        .collect();
                    assert_eq!(labels["server"], address);
                    assert_eq!(labels["core"], cores[0].to_string());
                    let name = key.key().name().to_owned() + labels.get("reason").map_or("", String::as_str);
                    match value {
                        // Taking a snapshot sets the recorder's counters to zero, and the next publication of what has
                        // changed to the whole count.
                        DebugValue::Counter(count) => {
                            let told = told.entry(name).or_insert(0);
                            *told = count.max(*told);
                        }
                        DebugValue::Gauge(level) if name == "corelet_service_open" => open = level.0,
                        _ => {}
                    }
                }
                open == 2.0
            })
            .await;
            let counts = [
                ("corelet_service_accepted_total", 3),
                ("corelet_service_requests_total", 3),
                ("corelet_service_bytes_in_total", 18),
                ("corelet_service_bytes_out_total", 18),
                ("corelet_service_frames_out_total", 3),
                ("corelet_service_refused_total", 0),
                ("corelet_service_closes_totalclosed", 1),
                ("corelet_service_closes_totalio", 0),
            ];
            for (name, count) in counts {
                assert_eq!(told[name], count, "{name}");
            }
            assert_eq!(told.len(), METRICS.len() - 3 + EndReason::ALL.len(), "gauges aside");
            soon(server.drain(Duration::from_secs(9))).await.unwrap();
        });
    }
}
