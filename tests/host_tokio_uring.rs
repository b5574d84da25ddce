//! The promises of cores inside a host, kept by tokio-uring.
#![cfg(feature = "tokio-uring")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod host_cases;
mod support;

/// Makes the test of each case.
macro_rules! inside {
    ($host:ident: $($group:ident::$case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                crate::host_cases::$group::$case(corelet::runtime::host::Host::$host);
            }
        )*
    };
}

host_cases::every_case!(inside!(TokioUring));
