//! Who asks for a connection, from where, and what the handle is held to.

use std::num::NonZeroU32;
use std::panic::Location;
use std::time::Duration;

use super::HandleId;
use super::leases::Holder;

/// The place in the program at which an acquire was made.
pub(crate) type Site = &'static Location<'static>;

/// Who asks. It travels with a forwarded acquire, so that the home shard decides about it as about its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub handle: HandleId,
    /// Where the acquire was made.
    pub site: Site,
    pub patience: Patience,
    pub rules: Rules,
}

impl Asker {
    /// Who has the lease, if it gets one.
    pub(super) fn holder(&self) -> Holder {
        Holder { handle: self.handle, site: self.site }
    }

    /// Stands in for the asker of an acquire that is decided anew. What is still known of the handle's rules is what its
    /// lost grant had counted for.
    #[track_caller]
    pub(crate) fn retried(handle: HandleId, charged_to: Option<Rules>) -> Asker {
        let rules = charged_to.unwrap_or_default();
        Asker { handle, site: Location::caller(), patience: Patience::of(None), rules }
    }
}

/// How long a caller will wait in all, whoever keeps the deadline. In microseconds, so that an asker takes half a cache
/// line; rounded up, for nobody is to be taken for less patient than he is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience(u32);

impl Patience {
    /// Without a time-out, or with one of more than an hour, it has no end.
    #[inline]
    pub(crate) fn of(timeout: Option<Duration>) -> Patience {
        let Some(timeout) = timeout.filter(|timeout| timeout.as_secs() < 3600) else {
            return Patience(u32::MAX);
        };
        Patience(timeout.as_secs() as u32 * 1_000_000 + timeout.subsec_nanos().div_ceil(1000))
    }

    pub(crate) fn limit(self) -> Option<Duration> {
        (self.0 < u32::MAX).then(|| Duration::from_micros(self.0.into()))
    }
}

/// What one handle is held to. Most are held to nothing, and are then not known to the shard unless they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Leases it may have at the same time.
    pub limit: Option<NonZeroU32>,
    /// When its waiters are shed.
    pub shedding: Option<Shedding>,
}

impl Rules {
    /// Held to nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.limit.is_none() && self.shedding.is_none()
    }
}

/// The two parameters of CoDel, in microseconds, so that they travel in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shedding {
    target: u32,
    interval: NonZeroU32,
}

impl Shedding {
    pub(crate) fn new(target: Duration, interval: Duration) -> Shedding {
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Shedding {
            target: micros(target),
            interval: NonZeroU32::new(micros(interval)).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// The wait that is tolerated for ever.
    pub(crate) fn target(self) -> Duration {
        Duration::from_micros(self.target.into())
    }

    /// For how long the wait must have been longer before the first is shed.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_micros(self.interval.get().into())
    }
}
