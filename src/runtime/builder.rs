//! Choosing cores and sizes, and making cores out of the choice.

use std::time::Duration;

use crossbeam_channel::Receiver;

use super::core::Core;
use super::driver::{Driver, EnterHook, RingConfig};
use super::error::StartError;
use super::executor::Executor;
#[cfg(feature = "tokio")]
use super::host::Host;
use super::identity::{Incarnation, NodeId};
use super::local::Local;
use super::mesh::{Mail, Mailbox};
use super::runtime_handle::RuntimeHandle;
use super::threads::Runtime;

/// Which of the machine's cores a runtime takes, out of those that the thread which builds it may run on: that thread
/// should not be pinned itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// All of them.
    #[default]
    All,
    /// The first so many of them.
    Count(usize),
    /// These, by the kernel's numbers.
    List(Vec<usize>),
}

/// Settings of a runtime. Made by [`Runtime::builder`](super::Runtime::builder).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RuntimeBuilder {
    cores: Cores,
    pinned: bool,
    busy_poll: Duration,
    wake_slot: bool,
    ring: RingConfig,
    thread_name: String,
    node: NodeId,
    incarnation: Incarnation,
    #[cfg(feature = "tokio")]
    host: Option<Host>,
}

impl RuntimeBuilder {
    pub(crate) fn new() -> RuntimeBuilder {
        RuntimeBuilder {
            cores: Cores::All,
            pinned: true,
            busy_poll: Duration::ZERO,
            wake_slot: false,
            ring: RingConfig {
                submission_entries: 256,
                completion_entries: 4096,
                receive_buffers: 512,
                receive_buffer_size: 4096,
                hook: None,
            },
            thread_name: "corelet".into(),
            node: NodeId::default(),
            incarnation: Incarnation::default(),
            #[cfg(feature = "tokio")]
            host: None,
        }
    }

    /// Which cores to run on; all that are allowed by default.
    pub fn cores(mut self, cores: Cores) -> Self {
        self.cores = cores;
        self
    }

    /// Whether each thread is pinned to its core; on by default. Without pinning, [`Cores::Count`] may exceed the
    /// number of cores of the machine.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// For how long an idle core looks at its queues before it sleeps; zero, the default, sleeps at once and uses no
    /// CPU when idle. Spinning makes hand-overs between cores and short replies quicker, at the price of a busy core.
    pub fn busy_poll(mut self, busy_poll: Duration) -> Self {
        self.busy_poll = busy_poll;
        self
    }

    /// Whether the task that another task woke last runs next; off by default.
    pub fn wake_slot(mut self, enabled: bool) -> Self {
        self.wake_slot = enabled;
        self
    }

    /// Entries of each core's submission queue (1 to 32,768; 256 by default).
    pub fn submission_entries(mut self, entries: u32) -> Self {
        self.ring.submission_entries = entries;
        self
    }

    /// Entries of each core's completion queue (at least those of the submission queue, at most 65,536; 4,096 by
    /// default). More completions at once than this are slower, never lost.
    pub fn completion_entries(mut self, entries: u32) -> Self {
        self.ring.completion_entries = entries;
        self
    }

    /// Number (a power of two, at most 32,768; 512 by default) and size in bytes (64 to 1,048,576; 4,096 by default)
    /// of each core's receive buffers, which idle connections share.
    pub fn receive_buffers(mut self, count: u16, size: usize) -> Self {
        self.ring.receive_buffers = count;
        self.ring.receive_buffer_size = size;
        self
    }

    /// What the threads are called; their number is appended.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Which node of a system of several this runtime is; zero by default. Members of
    /// [process groups](crate::actor::group) carry it.
    pub fn node(mut self, node: NodeId) -> Self {
        self.node = node;
        self
    }

    /// Which life of its node this is; zero by default. Whoever starts nodes again counts it up.
    pub fn incarnation(mut self, incarnation: Incarnation) -> Self {
        self.incarnation = incarnation;
        self
    }

    /// Has each core's thread run `host`, with the core as its guest: tasks of the core may then use the host's timers,
    /// channels and sockets as well. See [`host`](super::host).
    ///
    /// A core with a host sleeps where the host does, so [`busy_poll`](RuntimeBuilder::busy_poll) has no effect there.
    /// Guests from [`build_guests`](RuntimeBuilder::build_guests) have the host that their thread gives them.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn inside(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Has every kernel entry of every ring go through `hook` first: for fault injection in tests.
    pub fn enter_hook(mut self, hook: EnterHook) -> Self {
        self.ring.hook = Some(hook);
        self
    }

    /// Starts a thread for each core.
    ///
    /// # Errors
    /// [`StartError`] names the cause and the remedy; every thread that was started has then ended.
    pub fn build(self) -> Result<Runtime, StartError> {
        let (handle, guests) = self.prepare()?;
        Runtime::start(handle, guests, &self.thread_name)
    }

    /// Makes cores that the caller drives, each on a thread of its own: send each [`GuestCore`] to its thread.
    ///
    /// # Errors
    /// As for [`build`](RuntimeBuilder::build); the rings are made later, by [`GuestCore::start`].
    pub fn build_guests(self) -> Result<(RuntimeHandle, Vec<GuestCore>), StartError> {
        self.prepare()
    }

    fn prepare(&self) -> Result<(RuntimeHandle, Vec<GuestCore>), StartError> {
        self.check_sizes()?;
        let numbers = self.choose()?;
        let opened: Vec<_> = numbers.iter().map(|_| Mailbox::open()).collect::<Result<_, _>>()?;
        let mailboxes = opened.iter().map(|(mailbox, _)| mailbox.clone()).collect();
        let handle = RuntimeHandle::new(mailboxes, self.node, self.incarnation);
        let guests = numbers
            .into_iter()
            .zip(opened)
            .enumerate()
            .map(|(position, (number, (_, inbox)))| GuestCore {
                position,
                pin_to: self.pinned.then_some(number),
                settings: self.clone(),
                inbox,
                runtime: handle.clone(),
            })
            .collect();
        Ok((handle, guests))
    }

    fn check_sizes(&self) -> Result<(), StartError> {
        let ring = &self.ring;
        let refuse = |what, expected, got| Err(StartError::InvalidSize { what, expected, got });
        if !(1..=32_768).contains(&ring.submission_entries) {
            return refuse("submission_entries", "1 to 32,768", ring.submission_entries as usize);
        }
        if !(ring.submission_entries..=65_536).contains(&ring.completion_entries) {
            let expected = "between submission_entries and 65,536";
            return refuse("completion_entries", expected, ring.completion_entries as usize);
        }
        if !ring.receive_buffers.is_power_of_two() || ring.receive_buffers > 32_768 {
            let expected = "a power of two, at most 32,768";
            return refuse("receive_buffers (count)", expected, ring.receive_buffers.into());
        }
        if !(64..=1 << 20).contains(&ring.receive_buffer_size) {
            return refuse("receive_buffers (size)", "64 to 1,048,576", ring.receive_buffer_size);
        }
        Ok(())
    }

    /// The kernel's numbers of the chosen cores.
    fn choose(&self) -> Result<Vec<usize>, StartError> {
        let available: Vec<usize> =
            core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
        let chosen = match &self.cores {
            Cores::All => available,
            Cores::Count(asked) if !self.pinned => (0..*asked).collect(),
            Cores::Count(asked) if *asked > available.len() => {
                return Err(StartError::TooFewCores { asked: *asked, available: available.len() });
            }
            Cores::Count(asked) => available[..*asked].to_vec(),
            Cores::List(list) => {
                if let Some(&asked) = list.iter().find(|number| !available.contains(number)) {
                    return Err(StartError::UnknownCore { asked, available });
                }
                list.clone()
            }
        };
        if chosen.is_empty() { Err(StartError::NoCores) } else { Ok(chosen) }
    }
}

/// A core that is yet to be started, on the thread that will drive it.
#[derive(Debug)]
#[must_use = "a guest core does nothing until it is started"]
pub struct GuestCore {
    position: usize,
    pin_to: Option<usize>,
    settings: RuntimeBuilder,
    inbox: Receiver<Mail>,
    runtime: RuntimeHandle,
}

impl GuestCore {
    /// What its thread is to run, if not the core itself.
    #[cfg(feature = "tokio")]
    pub(crate) fn host(&self) -> Option<Host> {
        self.settings.host
    }

    /// Pins the calling thread, if the runtime is to be pinned, and makes the core's ring on it.
    ///
    /// # Errors
    /// [`StartError`] names the cause and the remedy.
    pub fn start(self) -> Result<Core, StartError> {
        if let Some(core) = self.pin_to
            && !core_affinity::set_for_current(core_affinity::CoreId { id: core })
        {
            return Err(StartError::Pin { core });
        }
        let mailbox = self.runtime.mailboxes()[self.position].clone();
        let driver = Driver::ring(&self.settings.ring, mailbox.bell())?;
        let executor = Executor::new(mailbox.core(), self.settings.wake_slot, 0);
        let local = Local::new(mailbox, self.inbox, driver, executor, self.settings.busy_poll, self.runtime);
        Ok(Core::new(local))
    }
}
