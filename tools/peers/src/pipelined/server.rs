//! A Redis of our own, on the other core and on a free port, that lives as long as the bench.

use crate::cores::SERVER;
use anyhow::{Context, Result, bail};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROGRAM: &str = "redis-server";
const START: Duration = Duration::from_secs(10);

pub fn is_installed() -> bool {
    Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

pub struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    pub fn start() -> Result<Redis> {
        if !is_installed() {
            bail!("pipelined needs {PROGRAM}, which Debian has in the package of that name");
        }
        // Redis does not choose a free port itself.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let process = Command::new("taskset")
            .args([
                "-c",
                &SERVER.to_string(),
                PROGRAM,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--port", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run taskset")?;
        let redis = Redis { process, address };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                bail!("{PROGRAM} does not answer on {address} after {START:?}");
            }
            sleep(Duration::from_millis(5));
        }
        Ok(redis)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
