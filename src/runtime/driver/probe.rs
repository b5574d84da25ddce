//! Finds out what this kernel's io_uring can do, by asking it: flags are tried and op codes probed, versions never read.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::RingConfig;
use crate::runtime::error::StartError;

/// What the ring of a core was found to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The kernel relies on one thread submitting (`IORING_SETUP_SINGLE_ISSUER`).
    pub single_issuer: bool,
    /// Completion work runs when the core asks for it (`IORING_SETUP_DEFER_TASKRUN`).
    pub defer_taskrun: bool,
    /// The ring's descriptor is registered with its thread.
    pub registered_ring: bool,
    /// Idle receives pin no memory: buffers come from a ring provided to the kernel.
    pub provided_buffers: bool,
    /// One accept serves many connections. Found out by the first use.
    pub multishot_accept: bool,
    /// One receive serves many arrivals. Found out by the first use.
    pub multishot_receive: bool,
    /// Time-outs of a wait travel with the wait.
    pub wait_timeout: bool,
}

#[derive(Clone, Copy)]
enum Rung {
    NoSubmissionArray,
    DeferTaskrun,
    SingleIssuer,
    CooperativeTaskrun,
    Plain,
}

const LADDER: [Rung; 5] =
    [Rung::NoSubmissionArray, Rung::DeferTaskrun, Rung::SingleIssuer, Rung::CooperativeTaskrun, Rung::Plain];

/// The ring with the best flags this kernel takes, stepping down on EINVAL.
pub(super) fn build(config: &RingConfig) -> Result<(IoUring, Features), StartError> {
    let mut refused = None;
    for rung in LADDER {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(config.completion_entries);
        if !matches!(rung, Rung::Plain) {
            builder.setup_submit_all();
        }
        match rung {
            Rung::NoSubmissionArray => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_no_sqarray()
            }
            Rung::DeferTaskrun => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            Rung::SingleIssuer => builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag(),
            Rung::CooperativeTaskrun => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Rung::Plain => &mut builder,
        };
        match builder.build(config.submission_entries) {
            Ok(ring) => {
                let features = Features {
                    single_issuer: ring.params().is_setup_single_issuer(),
                    defer_taskrun: matches!(rung, Rung::NoSubmissionArray | Rung::DeferTaskrun),
                    multishot_accept: true,
                    multishot_receive: true,
                    wait_timeout: ring.params().is_feature_ext_arg(),
                    ..Features::default()
                };
                require(&ring)?;
                return Ok((ring, features));
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            Err(error) => return Err(StartError::from_ring(error)),
        }
    }
    Err(StartError::from_ring(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
}

/// What corelet cannot do without.
fn require(ring: &IoUring) -> Result<(), StartError> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(StartError::from_ring)?;
    let needed = [
        (opcode::Accept::CODE, "accept"),
        (opcode::Connect::CODE, "connect"),
        (opcode::Recv::CODE, "recv"),
        (opcode::Send::CODE, "send"),
        (opcode::SendMsg::CODE, "sendmsg"),
        (opcode::Shutdown::CODE, "shutdown"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel::CODE, "cancel"),
        (opcode::Read::CODE, "read"),
        (opcode::Timeout::CODE, "timeout"),
    ];
    for (code, what) in needed {
        if !probe.is_supported(code) {
            return Err(StartError::MissingOperation { what });
        }
    }
    let parameters = ring.params();
    if !parameters.is_feature_skip_cqe_on_success() {
        return Err(StartError::MissingOperation { what: "skip-success (kernel 5.17)" });
    }
    if !parameters.is_feature_nodrop() || !parameters.is_feature_ext_arg() {
        return Err(StartError::MissingOperation { what: "loss-free completion queue (kernel 5.11)" });
    }
    Ok(())
}
