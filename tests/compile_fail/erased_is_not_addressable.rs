use corelet::actor::{Pid, send_to};

fn send(pid: Pid) {
    let _ = send_to(pid, "a text");
}

fn main() {}
