use corelet::actor::Reply;

fn answer(reply: Reply<u64>) {
    reply.send(1);
    reply.send(2);
}

fn main() {}
