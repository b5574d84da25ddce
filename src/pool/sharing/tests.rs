//! The queue for turns, held against a plain one.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use proptest::prelude::*;

use super::line::Line;
use super::order::Order;

#[derive(Clone, Debug)]
enum Event {
    Enter,
    Grant,
    Poll(usize),
    Leave(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Enter),
        2 => Just(Event::Grant),
        2 => any::<usize>().prop_map(Event::Poll),
        2 => any::<usize>().prop_map(Event::Leave),
    ]
}

proptest! {
    #[test]
    fn turns_are_granted_in_the_order_of_coming_whoever_leaves(events in prop::collection::vec(event(), 0..200)) {
        let mut line = Line::new();
        // Places, each with whether its turn has come.
        let mut model: VecDeque<(u32, bool)> = VecDeque::new();
        for event in events {
            match event {
                Event::Enter => {
                    let key = line.enter(Waker::noop().clone());
                    prop_assert!(model.iter().all(|(known, _)| *known != key));
                    model.push_back((key, false));
                }
                Event::Grant => {
                    let next = model.iter_mut().find(|(_, granted)| !granted);
                    prop_assert_eq!(line.grant_next().is_some(), next.is_some());
                    if let Some((_, granted)) = next {
                        *granted = true;
                    }
                }
                Event::Poll(at) | Event::Leave(at) if !model.is_empty() => {
                    let at = at % model.len();
                    let (key, granted) = model[at];
                    if let Event::Poll(_) = event {
                        let polled = line.poll(key, Waker::noop());
                        prop_assert_eq!(polled, if granted { Poll::Ready(true) } else { Poll::Pending });
                        if granted {
                            model.remove(at);
                        }
                    } else {
                        prop_assert_eq!(line.leave(key), granted);
                        model.remove(at);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(line.is_empty(), model.iter().all(|(_, granted)| *granted));
            prop_assert_eq!(line.granted(), model.iter().filter(|(_, granted)| *granted).count());
        }
    }

    #[test]
    fn an_order_keeps_its_order_whatever_is_taken_out(takes in prop::collection::vec(any::<prop::sample::Index>(), 1..50)) {
        let mut order = Order::new();
        let mut keys: Vec<u32> = (0..takes.len()).map(|value| order.push_back(value)).collect();
        let mut out = Vec::new();
        for (number, at) in takes.into_iter().enumerate() {
            prop_assert_eq!(order.front(), keys.first().copied());
            let key = keys.remove(at.index(keys.len()));
            if number % 2 == 0 {
                order.remove(key);
            } else {
                order.step_out(key);
                order.step_out(key);
                out.push(key);
            }
            prop_assert_eq!((order.in_line(), order.len()), (keys.len(), keys.len() + out.len()));
        }
        for key in out {
            order.remove(key);
        }
        prop_assert_eq!((order.front(), order.len()), (None, 0));
    }
}
