//! A room: one actor, on one core, so that all its members hear the same in the same order, on whatever core they are.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

use corelet::actor::server::{Context, Server};
use corelet::actor::{Down, Pid, Reply};
use corelet::service::push::{PushError, PushHandle};

/// Messages that are kept for those who come later.
pub const HISTORY: usize = 32;

/// What is asked of a room.
pub enum Ask {
    /// To be told from now on what is said, until the connection ends. The answer is how many are there then.
    Join { connection: Pid, name: String, pushes: PushHandle<String> },
    /// To have the house say something, which overtakes what is said. The answer is how many are there.
    Notice(String),
    /// How many messages did not reach somebody.
    Missed,
    /// The latest messages.
    History,
}

pub enum Answer {
    Number(u64),
    Lines(Vec<String>),
}

pub struct Say {
    pub connection: Pid,
    pub text: String,
}

#[derive(Default)]
pub struct Room {
    members: HashMap<Pid, Member>,
    history: VecDeque<String>,
    said: u64,
    missed: u64,
}

struct Member {
    name: String,
    pushes: PushHandle<String>,
    /// What did not fit into the queue since the last message that did.
    missed: u64,
}

impl Room {
    fn say(&mut self, connection: Pid, text: &str) {
        // Who has gone meanwhile says nothing more.
        let Some(speaker) = self.members.get(&connection) else { return };
        self.said += 1;
        let line = format!("{} {}: {text}", self.said, speaker.name);
        for member in self.members.values_mut() {
            match member.pushes.low(line.clone()) {
                Ok(()) if member.missed > 0 => {
                    let notice = format!("* you have missed {}", std::mem::take(&mut member.missed));
                    // If even that does not fit, the numbers of the messages tell.
                    let _ = member.pushes.high(notice);
                }
                Ok(()) => {}
                // Somebody does not read as fast as the others talk. Nobody waits for that.
                Err(PushError::Full(_)) => {
                    member.missed += 1;
                    self.missed += 1;
                }
                // Its end is on its way here.
                Err(_) => {}
            }
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    fn notice(&self, text: &str) {
        for member in self.members.values() {
            // Who has no room for the few words of the house has not listened for long.
            let _ = member.pushes.high(format!("* {text}"));
        }
    }
}

impl Server for Room {
    type Call = Ask;
    type Reply = Answer;
    type Cast = Say;
    type Info = Infallible;

    async fn handle_call(&mut self, ask: Ask, reply: Reply<Answer>, ctx: &Context<Self>) {
        reply.send(match ask {
            Ask::Join { connection, name, pushes } => {
                // With the connection's actor goes the member.
                ctx.watcher().watch(connection);
                self.notice(&format!("{name} has come"));
                self.members.insert(connection, Member { name, pushes, missed: 0 });
                Answer::Number(self.members.len() as u64)
            }
            Ask::Notice(text) => {
                self.notice(&text);
                Answer::Number(self.members.len() as u64)
            }
            Ask::Missed => Answer::Number(self.missed),
            Ask::History => Answer::Lines(self.history.iter().cloned().collect()),
        });
    }

    async fn handle_cast(&mut self, Say { connection, text }: Say, _: &Context<Self>) {
        self.say(connection, &text);
    }

    async fn handle_down(&mut self, down: Down, _: &Context<Self>) {
        if let Some(member) = self.members.remove(&down.pid) {
            self.notice(&format!("{} has gone", member.name));
        }
    }
}
