//! The table form of a machine.
//!
//! What a table must not get wrong is left to the compiler: the pairs of state and event are the arms of one match.

/// Writes a state machine from a table; the [`machine` module](crate::actor::machine) says what a machine does.
///
/// You write the states, the data, one *successor enum* for each state, and the handlers, which are plain functions. The macro
/// writes the enum of events, the machine with `new` and `start`, and its [`Machine`](crate::actor::machine::Machine)
/// implementation: the dispatch of events, entering, postponing, time-outs.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use corelet::actor::machine::Next;
/// use corelet::actor::{self, Reply};
/// use corelet::runtime::{Cores, Runtime};
///
/// enum State {
///     Locked,
///     Free,
/// }
///
/// /// Where a locked turnstile can go.
/// enum FromLocked {
///     Free,
/// }
///
/// /// Where a free one can go.
/// enum FromFree {
///     Locked,
/// }
///
/// #[derive(PartialEq)]
/// enum Timer {
///     Relock,
/// }
///
/// corelet::machine! {
///     machine Turnstile {
///         state State;
///         data u64;
///         context(passed, prev, cx);
///
///         events Event {
///             Coin,
///             Push(Reply<u64>),
///         }
///         timeouts Timer;
///
///         in State::Locked => FromLocked { Free } {
///             on Event::Coin => Next::To(FromLocked::Free),
///             postpone Event::Push(_),
///             after Timer::Relock => Next::Stay,
///         }
///
///         in State::Free => FromFree { Locked } {
///             enter => cx.set_state_timeout(Duration::from_secs(10), Timer::Relock),
///             on Event::Coin => Next::Stay,
///             on Event::Push(reply) => push(passed, reply),
///             after Timer::Relock => Next::To(FromFree::Locked),
///         }
///     }
/// }
///
/// fn push(passed: &mut u64, reply: Reply<u64>) -> Next<FromFree> {
///     *passed += 1;
///     reply.send(*passed);
///     Next::To(FromFree::Locked)
/// }
///
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let turnstile = Turnstile::start(0, State::Locked);
///     let (reply, passed) = actor::reply();
///     actor::send_to(turnstile, Event::Push(reply)).unwrap();
///     actor::send_to(turnstile, Event::Coin).unwrap();
///     assert_eq!(passed.await, Ok(1));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The table
///
/// First what there is, in this order:
///
/// | line | has |
/// |---|---|
/// | `machine Name {` | the machine to write; attributes and a visibility may precede it |
/// | `state State;` | your enum of states |
/// | `data Data;` | the type of what the machine has in every state |
/// | `context(data, prev, cx);` | what rows call these three: the data (`&mut Data`); the state that the machine comes from, which is the one that it is in (`&State`), or in `enter` the one that it has left (`Option<&State>`, none at the start); the [`Context`](crate::actor::machine::Context) |
/// | `events Event { Coin, Push(Reply<u64>) }` | the enum of events to write |
/// | `timeouts Timer;` | your type of time-outs; left out where there are none |
/// | `infos Info;` | your type of what comes [otherwise](crate::actor::machine::Machine::info); left out where there is none |
/// | `unhandled(info) => note(data, info);` | what to do with an info that no row of the state takes; left out, it is dropped |
///
/// Then the states, as `in` a pattern `=>` its successor enum, the variants that this has, and in braces the rows. The variants are
/// those of the state enum by the same name; where a state has parts, as in `Open(since)`, they are carried over. A pattern may stand
/// for several states (`State::Locked | State::Free`) and have rows for what they have in common. The rows, in this order, each
/// ended by a comma:
///
/// | row | has |
/// |---|---|
/// | `enter => ...` | what is done when the state is entered |
/// | `on Event::Coin => ...` | where an event leads: a `Next` of the successor enum |
/// | `postpone Event::Push(_)` | what is put off until the state changes |
/// | `after Timer::Relock => ...` | where a time-out leads |
/// | `info Info::Alarm => ...` | where an info leads |
///
/// The rows of a machine are tried from the top, as the arms of a `match` are. Patterns are matched against borrowed events as well,
/// to see what is postponed; so they have no `mut`, `ref` or `&` in them.
///
/// # What does not compile
///
/// | mistake | compiler's words |
/// |---|---|
/// | a pair of state and event that has no row | E0004, non-exhaustive patterns, which names the pair |
/// | a pair of state and time-out that has no row | the same |
/// | a row that is there twice, in one block | unreachable pattern |
/// | a row that is there twice, in two blocks | unreachable pattern, but in the crate that has the macro only: the compiler does not judge what another crate's macro has put together. The first row is taken |
/// | a handler that no row calls | never used, by the lint `dead_code` |
/// | a handler that goes where its state cannot go | E0599, no such variant |
/// | a successor enum with a variant that the table does not have | E0004 |
#[macro_export]
macro_rules! machine {
    (
        $(#[$meta:meta])*
        $vis:vis machine $Machine:ident {
            state $State:ident;
            data $Data:ty;
            context($data:ident, $prev:ident, $cx:ident);
            $(#[$events_meta:meta])*
            events $Event:ident {
                $($(#[$event_meta:meta])* $event:ident $(($($part:ty),* $(,)?))?),* $(,)?
            }
            $(timeouts $Timeout:ty;)?
            $(infos $Info:ty;)?
            $(unhandled($unhandled:pat) => $on_unhandled:expr;)?

            $(
                in $from:pat => $Next:ident { $($to:ident $(($($carried:ident),*))?),* $(,)? } {
                    $(enter => $enter:expr,)?
                    $(on $on:pat => $handle:expr,)*
                    $(postpone $postponed:pat,)*
                    $(after $after:pat => $timeout:expr,)*
                    $(info $info:pat => $inform:expr,)*
                }
            )*
        }
    ) => {
        $(#[$events_meta])*
        $vis enum $Event {
            $($(#[$event_meta])* $event $(($($part),*))?,)*
        }

        $(#[$meta])*
        $vis struct $Machine {
            data: $Data,
        }

        #[allow(dead_code)]
        impl $Machine {
            /// A machine with these data.
            $vis fn new(data: $Data) -> Self {
                Self { data }
            }

            /// Starts a machine with these data in this state, on the current core.
            ///
            /// # Panics
            /// When not called on a core.
            #[track_caller]
            $vis fn start(data: $Data, initial: $State) -> $crate::actor::Pid<Self> {
                $crate::actor::machine::start(Self { data }, initial)
            }
        }

        impl $crate::actor::Addressable for $Machine {
            type Msg = $Event;
        }

        $(
            impl ::core::convert::From<$Next> for $State {
                fn from(next: $Next) -> Self {
                    match next {
                        $($Next::$to $(($($carried),*))? => $State::$to $(($($carried),*))?,)*
                    }
                }
            }
        )*

        // A row may well diverge, and need not use what the context has.
        #[allow(unused_variables, unreachable_code, clippy::diverging_sub_expression)]
        impl $crate::actor::machine::Machine for $Machine {
            type State = $State;
            type Timeout = $crate::machine!(@type $($Timeout)?);
            type Info = $crate::machine!(@type $($Info)?);

            #[allow(unreachable_patterns)]
            fn enter(
                &mut self,
                state: &$State,
                $prev: ::core::option::Option<&$State>,
                $cx: &mut $crate::actor::machine::Context<Self>,
            ) {
                let $data = &mut self.data;
                match state {
                    $($from => { $($enter;)? })*
                    _ => {}
                }
            }

            #[allow(unreachable_patterns)]
            fn postpones(&self, state: &$State, event: &$Event) -> bool {
                match (state, event) {
                    $(
                        $(($from, $on) => false,)*
                        $(($from, $postponed) => true,)*
                    )*
                    _ => false,
                }
            }

            #[deny(unreachable_patterns)]
            fn handle(
                &mut self,
                state: &$State,
                event: $Event,
                $cx: &mut $crate::actor::machine::Context<Self>,
            ) -> $crate::actor::machine::Next<$State> {
                let ($data, $prev) = (&mut self.data, state);
                match (state, event) {
                    $(
                        $(($from, $on) => {
                            let next: $crate::actor::machine::Next<$Next> = $handle;
                            next.map(<$State as ::core::convert::From<$Next>>::from)
                        })*
                        $(($from, $postponed) => ::core::unreachable!("it is postponed"),)*
                    )*
                }
            }

            #[deny(unreachable_patterns)]
            fn timeout(
                &mut self,
                state: &$State,
                timeout: <Self as $crate::actor::machine::Machine>::Timeout,
                $cx: &mut $crate::actor::machine::Context<Self>,
            ) -> $crate::actor::machine::Next<$State> {
                let ($data, $prev) = (&mut self.data, state);
                match (state, timeout) {
                    $(
                        $(($from, $after) => {
                            let next: $crate::actor::machine::Next<$Next> = $timeout;
                            next.map(<$State as ::core::convert::From<$Next>>::from)
                        })*
                    )*
                }
            }

            #[deny(unreachable_patterns)]
            fn info(
                &mut self,
                state: &$State,
                info: <Self as $crate::actor::machine::Machine>::Info,
                $cx: &mut $crate::actor::machine::Context<Self>,
            ) -> $crate::actor::machine::Next<$State> {
                let ($data, $prev) = (&mut self.data, state);
                match (state, info) {
                    $(
                        $(($from, $info) => {
                            let next: $crate::actor::machine::Next<$Next> = $inform;
                            next.map(<$State as ::core::convert::From<$Next>>::from)
                        })*
                    )*
                    #[allow(unreachable_patterns)]
                    (_, info) => {
                        self.on_unhandled(state, info);
                        $crate::actor::machine::Next::Stay
                    }
                }
            }

            $(
                fn on_unhandled(
                    &mut self,
                    state: &$State,
                    $unhandled: <Self as $crate::actor::machine::Machine>::Info,
                ) {
                    let $data = &mut self.data;
                    $on_unhandled;
                }
            )?
        }

        // A row that is there twice in one state, found by patterns that are the caller's own: the compiler keeps to itself what
        // is wrong with a pattern that another crate's macro has put together.
        $(
            const _: () = {
                #[deny(unreachable_patterns)]
                #[allow(dead_code, unused_variables)]
                fn rows(
                    event: &$Event,
                    timeout: &<$Machine as $crate::actor::machine::Machine>::Timeout,
                    info: &<$Machine as $crate::actor::machine::Machine>::Info,
                ) {
                    match event {
                        $($on => {})*
                        $($postponed => {})*
                        #[allow(unreachable_patterns)]
                        _ => {}
                    }
                    match timeout {
                        $($after => {})*
                        #[allow(unreachable_patterns)]
                        _ => {}
                    }
                    match info {
                        $($info => {})*
                        #[allow(unreachable_patterns)]
                        _ => {}
                    }
                }
            };
        )*
    };

    (@type) => { ::core::convert::Infallible };
    (@type $type:ty) => { $type };
}
