use corelet::actor::{Addressable, Pid, send_to};

fn send<A: Addressable>(pid: Pid<A>, message: A::Msg) {
    let _ = send_to(pid, message);
}

fn main() {
    let _ = send::<corelet::actor::Erased>;
}
