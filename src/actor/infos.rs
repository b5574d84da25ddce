//! The receivers that a server or a machine listens to beside its mailbox.

use std::task::{Context, Poll};

use crate::actor::channel::Receiver;

/// In the order in which they were added, which is their priority. One word for the many that have none.
pub(super) struct Infos<I>(Option<Box<Arms<I>>>);

struct Arms<I>(Vec<Box<dyn Arm<I>>>);

trait Arm<I> {
    /// The next message; none when no more can come.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<I>>;
}

impl<M: Into<I> + 'static, I> Arm<I> for Receiver<M> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<I>> {
        self.poll_recv(cx).map(|received| received.ok().map(M::into))
    }
}

impl<I> Infos<I> {
    pub(super) fn new() -> Infos<I> {
        Infos(None)
    }

    pub(super) fn add<M: Into<I> + 'static>(&mut self, receiver: Receiver<M>) {
        self.0.get_or_insert_with(|| Box::new(Arms(Vec::new()))).0.push(Box::new(receiver));
    }

    /// The next message of the first receiver that has one. Those that are closed are let go.
    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<I> {
        match &mut self.0 {
            Some(arms) => arms.poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<I> Arms<I> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<I> {
        let mut index = 0;
        while let Some(arm) = self.0.get_mut(index) {
            match arm.poll(cx) {
                Poll::Ready(Some(info)) => return Poll::Ready(info),
                Poll::Ready(None) => drop(self.0.remove(index)),
                Poll::Pending => index += 1,
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::actor::channel::{bounded, unbounded};
    use crate::runtime::{Cores, Runtime};

    #[test]
    fn receivers_go_in_their_order_and_go_when_they_are_closed() {
        let runtime = Runtime::builder().cores(Cores::Count(1)).pinned(false).build().unwrap();
        let test = || async {
            let ((first, one), (second, two)) = (unbounded::<u8>(), bounded::<u16>(1));
            let mut infos = Infos::<u32>::new();
            infos.add(one);
            infos.add(two);
            second.send(300).unwrap();
            first.send(1).unwrap();
            drop(first);
            let arms = |infos: &Infos<u32>| infos.0.as_ref().map_or(0, |arms| arms.0.len());
            assert_eq!((poll_fn(|cx| infos.poll(cx)).await, arms(&infos)), (1, 2));
            assert_eq!((poll_fn(|cx| infos.poll(cx)).await, arms(&infos)), (300, 1));
            drop(second);
            let rest = poll_fn(|cx| Poll::Ready(infos.poll(cx))).await;
            assert_eq!((rest, arms(&infos)), (Poll::Pending, 0));
        };
        runtime.block_on(test).unwrap();
    }
}
