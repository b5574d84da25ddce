//! What must not compile, and what must.
//!
//! The compiler's words change from release to release, so they are compared only on the one they were taken from; and with
//! the features, for it writes out the paths of names that there are two of.
#![cfg(all(feature = "pool", feature = "service"))]
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::Command;
use std::rc::Rc;

use corelet::pool::{Acquire, Handle, Lease, Pool, TcpConnector};
use corelet::runtime::{Cores, Runtime, spawn};

/// Whose words are in `tests/compile_fail/*.stderr`. Take them anew with `TRYBUILD=overwrite`.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn misuse_does_not_compile() {
    let version =
        Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-V").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    if !version.starts_with(COMPILER) {
        println!("skipped: written for {COMPILER}x, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// Compiles only while the type does not implement the trait: if it did, it would be unclear which `check` is meant.
macro_rules! is_not {
    ($type:ty: $trait:path) => {{
        trait Unclear<Marker> {
            fn check() {}
        }
        impl<T> Unclear<()> for T {}
        impl<T: $trait> Unclear<u8> for T {}
        <$type as Unclear<_>>::check();
    }};
}

#[test]
fn what_belongs_to_a_core_stays_there() {
    is_not!(Handle<TcpConnector>: Clone);
    is_not!(Handle<TcpConnector>: Send);
    is_not!(Handle<TcpConnector>: Sync);
    is_not!(Lease<TcpConnector>: Clone);
    is_not!(Lease<TcpConnector>: Send);
    is_not!(Acquire<'static, TcpConnector>: Send);
    fn goes_everywhere<T: Clone + Send + Sync>() {}
    goes_everywhere::<Pool<TcpConnector>>();
}

#[test]
fn futures_that_cannot_be_sent_run_where_they_are() {
    let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
    let sum = runtime
        .block_on(|| async {
            let local = Rc::new(20);
            let theirs = Rc::clone(&local);
            *local + spawn(async move { *theirs + 2 }).await.unwrap()
        })
        .unwrap();
    assert_eq!(sum, 42);
}
