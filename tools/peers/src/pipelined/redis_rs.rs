//! The `redis` crate: one multiplexed connection, cloned for each caller as its documentation says.

use super::resp::{DIGITS, read_digits, write_digits};
use crate::meter::{Meter, Throughput};
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;

pub fn run(address: SocketAddr, callers: usize, slice: Duration) -> Result<Throughput> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let client = redis::Client::open(format!("redis://{address}"))?;
        let connection = client.get_multiplexed_async_connection().await?;
        let meter = Rc::new(Meter::new(slice));
        let tasks: Vec<_> = (0..callers as u64)
            .map(|caller| {
                let (mut connection, meter) = (connection.clone(), Rc::clone(&meter));
                tokio::task::spawn_local(async move {
                    let mut number = caller << 40;
                    let mut digits = [0; DIGITS];
                    loop {
                        write_digits(number, &mut digits);
                        let reply: Vec<u8> =
                            redis::cmd("ECHO").arg(&digits[..]).query_async(&mut connection).await?;
                        ensure!(read_digits(&reply) == Some(number), "{number} got {reply:?}");
                        number += 1;
                        if !meter.add(1) {
                            return Ok(());
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        meter.outcome().context("the callers ended before the slice was over")
    })
}
